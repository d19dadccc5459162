package media

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"
)

// Transcode produces all rungs of a source in one run of ffmpeg that decodes
// it once. It writes into dir, which must exist, be empty and belong to this
// attempt alone, one folder for each rendition with a playlist, a header and
// segments, and of a source with a picture one with a storyboard. Video and audio renditions are kept apart. progress may be nil; it
// is called about once a second from another goroutine, and no more once
// Transcode has returned.
//
// If ctx ends, ffmpeg is killed and gone when Transcode returns; what lies in
// dir is worthless then. A [*Refused] error means that too little of the source
// could be decoded. Success says only that there are renditions: [Tools.Check]
// says whether they are whole.
func (t Tools) Transcode(
	ctx context.Context, src string, info *Info, rungs []Rung, dir string, progress func(Progress),
) (*Output, error) {
	t = t.counting()
	ctx, cancel := t.within(ctx, info.Duration)
	defer cancel()
	abs, url, err := sourceURL(src)
	if err != nil {
		return nil, err
	}
	video, audio := jobs(info, rungs)
	if info.Video == nil {
		video = nil
	}
	if len(video)+len(audio) == 0 {
		return nil, fmt.Errorf("transcode: no rung fits the source")
	}
	c, err := t.caps(ctx, len(video) > 0, len(audio) > 0)
	if err != nil {
		return nil, fmt.Errorf("transcode: %w", err)
	}
	if err := makeFolders(dir, video, audio); err != nil {
		return nil, fmt.Errorf("transcode: %w", err)
	}
	plan := planTiming(info)
	args := t.transcodeArgs(url, info, video, audio, plan, c)
	reader := newProgressReader(info.Duration, progress, time.Now)
	out, err := t.run(ctx, child{tool: "ffmpeg", what: "transcode", args: args, dir: dir, source: abs, stdout: reader})
	if err != nil {
		return nil, fmt.Errorf("transcode: %w", out.blameDisk(explain(err, dir, info, len(video) > 0)))
	}
	result, err := t.collect(ctx, dir, info, video, audio, plan, c, out)
	if err != nil {
		return nil, fmt.Errorf("transcode: %w", out.blameDisk(err))
	}
	result.Storyboard, err = t.storyboard(ctx, dir, info, result)
	if err != nil && !errors.Is(err, ErrNoPicture) {
		return nil, fmt.Errorf("transcode: make storyboard: %w", err)
	}
	return result, nil
}

func makeFolders(dir string, video, audio []job) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("the output folder is not empty")
	}
	for _, list := range [][]job{video, audio} {
		for _, j := range list {
			if !plainName(j.folder) {
				return fmt.Errorf("rung %q is no name for a folder", j.folder)
			}
			if err := os.Mkdir(filepath.Join(dir, j.folder), 0o755); err != nil {
				return err
			}
		}
	}
	return nil
}

// explain turns an exit code into a refusal where the source is to blame:
// ffmpeg had no trouble with anything but it, and nothing came out.
func explain(err error, dir string, info *Info, video bool) error {
	exit := (*exitError)(nil)
	if !errors.As(err, &exit) || exit.signal != 0 {
		return err
	}
	if trouble := hostTrouble(exit.tail); trouble != nil {
		return fmt.Errorf("%w: %w", trouble, err)
	}
	if !video {
		if made, globErr := fs.Glob(os.DirFS(dir), "*/seg-*"); globErr == nil && len(made) == 0 {
			return &Refused{Reason: "its sound could not be decoded", Detail: exit.tail}
		}
		return err
	}
	if decoded, tapErr := readTap(filepath.Join(dir, decodedTap), 0); tapErr == nil && decoded.frames == 0 {
		return &Refused{Reason: fmt.Sprintf("not one frame of its %s video could be decoded", info.Video.Codec), Detail: exit.tail}
	}
	return err
}

// collect measures what ffmpeg wrote.
func (t Tools) collect(ctx context.Context, dir string, info *Info, video, audio []job, plan timing, c caps, out said) (*Output, error) {
	o := &Output{
		Video: []Rendition{}, Audio: []Rendition{}, Constant: plan.repeats > 0, DecodeErrors: out.errors, Warnings: []string{},
	}
	if len(video) > 0 {
		if err := o.readTaps(dir, info, plan, out); err != nil {
			return nil, err
		}
		if info.Video.HDR != "" && !c.zscale {
			o.warn("this ffmpeg has no zscale filter: colours of the HDR source are only near the right ones")
		}
	}
	if o.Damage == nil && out.errors > 0 {
		o.Damage = &Damage{Errors: out.errors}
	}
	o.Damage.tell(o)
	for _, j := range video {
		r, err := t.measureRendition(ctx, dir, j, info, plan)
		if err != nil {
			return nil, err
		}
		o.Video = append(o.Video, r)
	}
	for _, j := range audio {
		r, err := t.measureRendition(ctx, dir, j, info, plan)
		if undecoded(err) && out.disk == nil && len(video)+len(audio) > 1 {
			// Sound that cannot be decoded does not keep the picture from
			// being published.
			o.warn("the audio stream %d could not be decoded and is left out", j.audio.Index)
			if err := os.RemoveAll(filepath.Join(dir, j.folder)); err != nil {
				return nil, fmt.Errorf("remove empty rendition: %w", err)
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		o.Audio = append(o.Audio, r)
	}
	if len(o.Video)+len(o.Audio) == 0 {
		return nil, &Refused{Reason: "its sound could not be decoded", Detail: out.tail}
	}
	o.sumUp()
	return o, nil
}

// undecoded tells sound of which nothing came out from trouble with the disk.
func undecoded(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNothing)
}

func (o *Output) sumUp() {
	seen := map[string]bool{}
	for i := range o.Audio {
		a := &o.Audio[i]
		a.Default = !seen[a.Group]
		seen[a.Group] = true
	}
	for _, list := range [][]Rendition{o.Video, o.Audio} {
		for _, r := range list {
			o.Duration = max(o.Duration, r.Duration)
			o.Bytes += r.Bytes
		}
	}
}

// readTaps finds out how much of the source was decoded and removes the lists.
func (o *Output) readTaps(dir string, info *Info, plan timing, out said) error {
	decoded, err := readTap(filepath.Join(dir, decodedTap), max(holeSeconds, holeFrames*frameTime(info.Video)))
	if err != nil {
		return err
	}
	shown, err := readTap(filepath.Join(dir, shownTap), 0)
	if err != nil {
		return err
	}
	for _, name := range []string{decodedTap, shownTap} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("remove frame list: %w", err)
		}
	}
	o.Decoded, o.Distinct, o.Expected = decoded.frames, decoded.distinct, shown.frames
	o.DecodedEnd = decoded.end - plan.skew
	if decoded.frames == 0 {
		return &Refused{Reason: fmt.Sprintf("not one frame of its %s video could be decoded", info.Video.Codec), Detail: out.tail}
	}
	return o.judge(info, decoded, out)
}

func frameTime(v *Video) float64 {
	if v.FPS <= 0 {
		return 0
	}
	return 1 / v.FPS
}

func (o *Output) warn(format string, args ...any) {
	o.Warnings = addWarning(o.Warnings, fmt.Sprintf(format, args...))
}

// measureRendition puts a rendition's header, segments and playlist right and
// describes the result.
func (t Tools) measureRendition(ctx context.Context, dir string, j job, info *Info, plan timing) (Rendition, error) {
	list := path.Join(j.folder, playlistName)
	s, err := t.inspect(ctx, dir, list)
	if err != nil {
		return Rendition{}, err
	}
	header := path.Join(j.folder, s.init)
	skip, until := s.segments[0].first, plan.length
	if j.audio != nil {
		// Each sound track ends where it does in the source.
		skip, until = skip+priming, 0
	}
	if err := mendHeader(filepath.Join(dir, filepath.FromSlash(header)), skip); err != nil {
		return Rendition{}, fmt.Errorf("mend header of %s: %w", list, err)
	}
	if err := s.mendSegments(filepath.Join(dir, filepath.FromSlash(j.folder)), until); err != nil {
		return Rendition{}, fmt.Errorf("mend segments of %s: %w", list, err)
	}
	if err := writeFile(filepath.Join(dir, filepath.FromSlash(list)), []byte(s.playlist())); err != nil {
		return Rendition{}, fmt.Errorf("mend playlist %s: %w", list, err)
	}
	if s, err = t.inspect(ctx, dir, list); err != nil {
		return Rendition{}, err
	}
	r := Rendition{
		Name: j.folder, Playlist: list, Init: header, Codecs: s.codecs, Width: s.width, Height: s.height, Frames: s.frames,
		Duration: s.duration(), Segments: len(s.segments), Bytes: s.bytes, Channels: s.channels, SampleRate: s.rate,
	}
	r.PeakBandwidth, r.AverageBandwidth = bandwidth(s)
	if j.audio != nil {
		r.Duration -= s.seconds(priming)
		r.Group, r.Source, r.Language, r.Title = j.rung.Name, j.audio.Index, j.audio.Language, j.audio.Title
		return r, nil
	}
	r.Source, r.FrameRate = info.Video.Index, s.frameRate(plan.held())
	return r, nil
}
