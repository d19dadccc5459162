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
	t = t.withStepCounter()
	ctx, cancel := t.withTimeLimit(ctx, info.Duration)
	defer cancel()
	abs, url, err := sourceURL(src)
	if err != nil {
		return nil, err
	}
	video, audio := renditionJobs(info, rungs)
	if info.Video == nil {
		video = nil
	}
	if len(video)+len(audio) == 0 {
		return nil, fmt.Errorf("transcode: no rung fits the source")
	}
	c, err := t.capabilities(ctx, len(video) > 0, len(audio) > 0)
	if err != nil {
		return nil, fmt.Errorf("transcode: %w", err)
	}
	if err := createRenditionDirs(dir, video, audio); err != nil {
		return nil, fmt.Errorf("transcode: %w", err)
	}
	plan := planTiming(info)
	args := t.transcodeArgs(url, info, video, audio, plan, c)
	reader := newProgressReader(info.Duration, progress, time.Now)
	out, err := t.run(ctx, command{tool: "ffmpeg", purpose: "transcode", args: args, dir: dir, source: abs, stdout: reader})
	if err != nil {
		return nil, fmt.Errorf("transcode: %w", out.preferDiskError(explainExit(err, dir, info, len(video) > 0)))
	}
	result, err := t.collect(ctx, dir, info, video, audio, plan, c, out)
	if err != nil {
		return nil, fmt.Errorf("transcode: %w", out.preferDiskError(err))
	}
	result.Storyboard, err = t.storyboard(ctx, dir, info, result)
	if err != nil && !errors.Is(err, ErrNoPicture) {
		return nil, fmt.Errorf("transcode: make storyboard: %w", err)
	}
	return result, nil
}

func createRenditionDirs(dir string, video, audio []renditionJob) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("the output folder is not empty")
	}
	for _, list := range [][]renditionJob{video, audio} {
		for _, j := range list {
			if !isPlainName(j.dir) {
				return fmt.Errorf("rung %q is no name for a folder", j.dir)
			}
			if err := os.Mkdir(filepath.Join(dir, j.dir), 0o755); err != nil {
				return err
			}
		}
	}
	return nil
}

// explain turns an exit code into a refusal where the source is to blame:
// ffmpeg had no trouble with anything but it, and nothing came out.
func explainExit(err error, dir string, info *Info, video bool) error {
	exit := (*exitError)(nil)
	if !errors.As(err, &exit) || exit.signal != 0 {
		return err
	}
	if trouble := hostError(exit.tail); trouble != nil {
		return fmt.Errorf("%w: %w", trouble, err)
	}
	if !video {
		if made, globErr := fs.Glob(os.DirFS(dir), "*/seg-*"); globErr == nil && len(made) == 0 {
			return &RejectedError{Reason: "its sound could not be decoded", Detail: exit.tail}
		}
		return err
	}
	if decoded, tapErr := readFrameList(filepath.Join(dir, decodedFrames), 0); tapErr == nil && decoded.frames == 0 {
		return &RejectedError{Reason: fmt.Sprintf("not one frame of its %s video could be decoded", info.Video.Codec), Detail: exit.tail}
	}
	return err
}

// collect measures what ffmpeg wrote.
func (t Tools) collect(ctx context.Context, dir string, info *Info, video, audio []renditionJob, plan timing, c capabilities, out stderrReport) (*Output, error) {
	o := &Output{
		Video: []Rendition{}, Audio: []Rendition{}, Constant: plan.repeatedFrames > 0, DecodeErrors: out.errors, Warnings: []string{},
	}
	if len(video) > 0 {
		if err := o.readFrameLists(dir, info, plan, out); err != nil {
			return nil, err
		}
		if info.Video.HDR != "" && !c.zscale {
			o.warn("this ffmpeg has no zscale filter: colours of the HDR source are only near the right ones")
		}
	}
	if o.Damage == nil && out.errors > 0 {
		o.Damage = &Damage{Errors: out.errors}
	}
	o.Damage.addWarning(o)
	for _, j := range video {
		r, err := t.measureRendition(ctx, dir, j, info, plan)
		if err != nil {
			return nil, err
		}
		o.Video = append(o.Video, r)
	}
	for _, j := range audio {
		r, err := t.measureRendition(ctx, dir, j, info, plan)
		if isEmptyRendition(err) && out.diskError == nil && len(video)+len(audio) > 1 {
			// Sound that cannot be decoded does not keep the picture from
			// being published.
			o.warn("the audio stream %d could not be decoded and is left out", j.audio.Index)
			if err := os.RemoveAll(filepath.Join(dir, j.dir)); err != nil {
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
		return nil, &RejectedError{Reason: "its sound could not be decoded", Detail: out.tail}
	}
	o.summarize()
	return o, nil
}

// undecoded tells sound of which nothing came out from trouble with the disk.
func isEmptyRendition(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errEmptyRendition)
}

func (o *Output) summarize() {
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
func (o *Output) readFrameLists(dir string, info *Info, plan timing, out stderrReport) error {
	decoded, err := readFrameList(filepath.Join(dir, decodedFrames), max(gapSeconds, gapFrames*frameTime(info.Video)))
	if err != nil {
		return err
	}
	shown, err := readFrameList(filepath.Join(dir, encodedFrames), 0)
	if err != nil {
		return err
	}
	for _, name := range []string{decodedFrames, encodedFrames} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("remove frame list: %w", err)
		}
	}
	o.Decoded, o.Distinct, o.Expected = decoded.frames, decoded.distinct, shown.frames
	o.DecodedEnd = decoded.end - plan.offset
	if decoded.frames == 0 {
		return &RejectedError{Reason: fmt.Sprintf("not one frame of its %s video could be decoded", info.Video.Codec), Detail: out.tail}
	}
	return o.assessDamage(info, decoded, out)
}

func frameTime(v *Video) float64 {
	if v.FPS <= 0 {
		return 0
	}
	return 1 / v.FPS
}

func (o *Output) warn(format string, args ...any) {
	o.Warnings = appendWarning(o.Warnings, fmt.Sprintf(format, args...))
}

// measureRendition puts a rendition's header, segments and playlist right and
// describes the result.
func (t Tools) measureRendition(ctx context.Context, dir string, j renditionJob, info *Info, plan timing) (Rendition, error) {
	list := path.Join(j.dir, playlistName)
	s, err := t.inspect(ctx, dir, list)
	if err != nil {
		return Rendition{}, err
	}
	header := path.Join(j.dir, s.init)
	skip, until := s.segments[0].firstPTS, plan.repeatedSeconds
	if j.audio != nil {
		// Each sound track ends where it does in the source.
		skip, until = skip+encoderDelay, 0
	}
	if err := fixInit(filepath.Join(dir, filepath.FromSlash(header)), skip); err != nil {
		return Rendition{}, fmt.Errorf("mend header of %s: %w", list, err)
	}
	if err := s.fixSegments(filepath.Join(dir, filepath.FromSlash(j.dir)), until); err != nil {
		return Rendition{}, fmt.Errorf("mend segments of %s: %w", list, err)
	}
	if err := writeFile(filepath.Join(dir, filepath.FromSlash(list)), []byte(s.playlist())); err != nil {
		return Rendition{}, fmt.Errorf("mend playlist %s: %w", list, err)
	}
	if s, err = t.inspect(ctx, dir, list); err != nil {
		return Rendition{}, err
	}
	r := Rendition{
		Name: j.dir, Playlist: list, Init: header, Codecs: s.codecs, Width: s.width, Height: s.height, Frames: s.frames,
		Duration: s.duration(), Segments: len(s.segments), Bytes: s.bytes, Channels: s.channels, SampleRate: s.sampleRate,
	}
	r.PeakBandwidth, r.AverageBandwidth = bandwidth(s)
	if j.audio != nil {
		r.Duration -= s.seconds(encoderDelay)
		r.Group, r.Source, r.Language, r.Title = j.rung.Name, j.audio.Index, j.audio.Language, j.audio.Title
		return r, nil
	}
	r.Source, r.FrameRate = info.Video.Index, s.frameRate(plan.firstFrameHold())
	return r, nil
}
