package media

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// Transcode makes all rungs of a source in one run of ffmpeg that decodes it
// once. dir must exist, be empty and belong to this attempt alone. Transcode
// writes one directory per rendition, with a playlist, an initialization segment
// and segments, and a storyboard if the source has a picture. Video and audio
// renditions are separate. progress may be nil; it is called about once a second
// from another goroutine, and never after Transcode has returned.
//
// If a hardware encoder of Tools.Encoders fails, the content of dir is removed and
// made again with libx264.
//
// If ctx ends, ffmpeg is killed before Transcode returns, and the content of dir
// is useless. A [*RejectedError] means that too little of the source could be
// decoded, and an error that wraps [ErrMismatch] that the result is wrong: the
// renditions passed [Tools.Check], and their sound and some of their pictures were
// compared with the source.
func (t Tools) Transcode(
	ctx context.Context, src string, info *Info, rungs []Rung, dir string, progress func(Progress),
) (*Output, error) {
	out, err := t.withStepCounter().transcode(ctx, src, info, rungs, dir, progress)
	if err != nil {
		return nil, fmt.Errorf("transcode: %w", err)
	}
	return out, nil
}

func (t Tools) transcode(
	ctx context.Context, src string, info *Info, rungs []Rung, dir string, progress func(Progress),
) (*Output, error) {
	source, err := filepath.Abs(src)
	if err != nil {
		return nil, err
	}
	t = t.joining(source, info)
	video, audio := renditionJobs(info, rungs)
	if info.Video == nil {
		video = nil
	}
	if len(video)+len(audio) == 0 {
		return nil, fmt.Errorf("the ladder has no rung for this source")
	}
	c, err := t.capabilities(ctx, slices.Concat(video, audio)...)
	if err != nil {
		return nil, err
	}
	e, d, err := t.chooseEncoder(video, c)
	if err != nil {
		return nil, err
	}
	r := transcodeRun{
		tools: t, source: source, dir: dir, info: info, video: video, audio: audio, plan: planTiming(info), found: c,
		progress: progress,
	}
	encode := r.encodeChecked
	if e.isHardware() {
		encode = r.encodeWithFallback
	}
	out, err := encode(ctx, e, d)
	if slices.ContainsFunc(video, isCopy) && ctx.Err() == nil && (err == nil && out.DecodeErrors > 0 || err != nil && isEncoderFailure(err)) {
		out, err = r.encodeInsteadOfCopy(ctx, err)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := t.withTimeLimit(ctx, info.decodedSeconds())
	defer cancel()
	if err := r.soundCheck().run(ctx, dir, out); err != nil {
		return nil, err
	}
	return out, nil
}

// transcodeRun is one run of ffmpeg that makes all renditions.
type transcodeRun struct {
	tools        Tools
	source, dir  string
	info         *Info
	video, audio []renditionJob
	plan         timing
	found        capabilities
	progress     func(Progress) // may be nil
	failed       string         // the encoder of the run before, if it failed
}

// encodeChecked encodes, and checks everything but the content of the sound.
func (r transcodeRun) encodeChecked(ctx context.Context, e videoEncoder, d *device) (*Output, error) {
	out, err := r.encode(ctx, e, d)
	ctx, cancel := r.tools.withTimeLimit(ctx, r.info.decodedSeconds())
	defer cancel()
	check := r.tools.check
	if len(r.video) == 0 {
		check = r.tools.checkRenditions // the ladder may leave out the picture of the source
	}
	if err == nil {
		err = check(ctx, r.info, r.dir, out)
	}
	if err == nil && out.DecodeErrors == 0 { // decoders show different pictures of a damaged source
		err = r.checkPictures(ctx, func(j renditionJob) (*renditionFiles, error) { return r.inspect(ctx, j) })
	}
	return out, err
}

func (r transcodeRun) inspect(ctx context.Context, j renditionJob) (*renditionFiles, error) {
	return r.tools.inspect(ctx, r.dir, path.Join(j.dir, playlistName))
}

func (r transcodeRun) soundCheck() soundCheck {
	return soundCheck{r.tools, r.source, r.info, r.found, r.audio}
}

// checkPictures compares some pictures with the source.
func (r transcodeRun) checkPictures(ctx context.Context, read func(renditionJob) (*renditionFiles, error)) error {
	p := pictureCheck{
		tools: r.tools, source: r.source, dir: r.dir, info: r.info, plan: r.plan, cut: r.plan.cut, found: r.found,
	}
	p.plan.cut = nil // the times are those of the whole
	for _, j := range r.video {
		files, err := read(j)
		if err != nil {
			return err
		}
		p.renditions = append(p.renditions, writtenRendition{j, files})
	}
	return p.run(ctx)
}

func (r transcodeRun) encode(ctx context.Context, e videoEncoder, d *device) (*Output, error) {
	ctx, cancel := r.tools.withTimeLimit(ctx, r.info.decodedSeconds())
	defer cancel()
	if err := createRenditionDirs(r.dir, slices.Concat(r.video, r.audio)); err != nil {
		return nil, err
	}
	if err := r.writeCopies(ctx); err != nil {
		return nil, err
	}
	cmd := command{
		tool: "ffmpeg", purpose: "transcode", dir: r.dir, source: r.source, device: d,
		args:   r.tools.transcodeArgs(r.source, r.info, r.video, r.audio, r.plan, r.found, e, d),
		stdout: newProgressReader(r.info.decodedSeconds(), r.progressOf(e), time.Now),
	}
	out, err := r.run(ctx, cmd)
	if err != nil && e.isHardware() {
		return nil, err // only libx264 shows whether the source is to blame
	}
	if err != nil {
		return nil, out.preferDiskError(explainExit(err, r.dir, r.info, len(r.video) > 0))
	}
	result, err := r.tools.collect(ctx, r.dir, r.info, r.video, r.audio, r.plan, r.found, out)
	if err != nil {
		return nil, out.preferDiskError(err)
	}
	result.Storyboard, err = r.tools.storyboard(ctx, r.dir, r.info, result)
	if err != nil && !errors.Is(err, ErrNoPicture) {
		return nil, fmt.Errorf("make storyboard: %w", err)
	}
	if len(r.video) > 0 {
		result.Encoder = e.name
	}
	return result, nil
}

// run runs the encoder, and the decoders of the sounds that it reads.
func (r transcodeRun) run(ctx context.Context, encoder command) (stderrReport, error) {
	decoder := soundDecoder{tools: r.tools, source: r.source, info: r.info, found: r.found}
	sounds, err := decoder.start(ctx, soundsOf(r.audio))
	if err != nil {
		return stderrReport{}, err
	}
	encoder.pipes = sounds.pipes
	return sounds.finish(r.tools.run(ctx, encoder))
}

// approximateColours warns of HDR, of wide colours and of rare matrices without the zscale filter.
const approximateColours = "the colours are approximate, because this ffmpeg has no zscale filter"

func createRenditionDirs(dir string, jobs []renditionJob) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("the output directory is not empty")
	}
	for _, j := range jobs {
		if !isPlainName(j.dir) {
			return fmt.Errorf("rung %q is not a valid directory name", j.dir)
		}
		if err := os.Mkdir(filepath.Join(dir, j.dir), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// explainExit turns ffmpeg's exit into a rejection if the source is to blame:
// there is no host error, and no output.
func explainExit(err error, dir string, info *Info, video bool) error {
	exit, otherErr := exitBySource(err)
	if exit == nil {
		return otherErr
	}
	if !video {
		if segments, globErr := fs.Glob(os.DirFS(dir), "*/seg-*"); globErr == nil && len(segments) == 0 {
			return noAudioDecoded(exit.tail)
		}
		return err
	}
	if decoded, listErr := readFrameList(filepath.Join(dir, decodedFrames), 0); listErr == nil && decoded.frames == 0 {
		return noFrameDecoded(info.Video, exit.tail)
	}
	return err
}

// collect measures what ffmpeg wrote.
func (t Tools) collect(
	ctx context.Context, dir string, info *Info, video, audio []renditionJob, plan timing, c capabilities,
	out stderrReport,
) (*Output, error) {
	o := &Output{
		Video: []Rendition{}, Audio: []Rendition{}, Constant: plan.repeatedFrames > 0,
		DecodeErrors: out.errors, Warnings: []string{},
	}
	if len(video) > 0 {
		if err := o.readFrameLists(dir, info, plan, out); err != nil {
			return nil, err
		}
		if !c.zscale && info.Video.colours().needsZscale() {
			o.warn(approximateColours)
		}
	}
	o.warnOfDamage(out.errors)
	jobs := slices.Concat(video, audio)
	for _, j := range jobs {
		r, err := t.finishRendition(ctx, dir, j, info, plan)
		isEmpty := errors.Is(err, fs.ErrNotExist) || errors.Is(err, errEmptyRendition)
		switch {
		case j.audio != nil && isEmpty && out.diskError == nil && len(jobs) > 1:
			err = o.removeRendition(dir, j) // publish the rest
		case err == nil && j.audio != nil:
			o.Audio = append(o.Audio, r)
		case err == nil:
			o.Video = append(o.Video, r)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(o.Video)+len(o.Audio) == 0 {
		return nil, noAudioDecoded(out.tail)
	}
	o.summarize()
	return o, nil
}

// removeRendition removes the rendition of audio that cannot be decoded.
func (o *Output) removeRendition(dir string, j renditionJob) error {
	o.warnOfMissing(j)
	if err := os.RemoveAll(filepath.Join(dir, j.dir)); err != nil {
		return fmt.Errorf("remove empty rendition: %w", err)
	}
	return nil
}

func (o *Output) warnOfMissing(j renditionJob) {
	o.warn("the audio stream %d could not be decoded and is left out", j.audio.Index)
}

func (o *Output) summarize() {
	for i := range o.Audio {
		o.Audio[i].Default = o.Audio[i].Source == o.Audio[0].Source
	}
	for _, list := range [][]Rendition{o.Video, o.Audio} {
		for _, r := range list {
			o.Duration = max(o.Duration, r.Duration)
			o.Bytes += r.Bytes
		}
	}
}

// readFrameLists measures how much of the source was decoded, and removes the
// frame lists.
func (o *Output) readFrameLists(dir string, info *Info, plan timing, out stderrReport) error {
	decoded, err := readFrameList(filepath.Join(dir, decodedFrames), max(gapSeconds, gapFrames*frameTime(info.Video)))
	if err != nil {
		return err
	}
	encoded, err := readFrameList(filepath.Join(dir, encodedFrames), 0)
	if err != nil {
		return err
	}
	for _, name := range []string{decodedFrames, encodedFrames} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("remove frame list: %w", err)
		}
	}
	o.Decoded, o.Distinct, o.Expected = decoded.frames, decoded.distinct, encoded.frames
	o.FrameTimes, o.DecodedEnd = encoded.runs, decoded.end-plan.begin()
	if decoded.frames == 0 {
		return noFrameDecoded(info.Video, out.tail)
	}
	return o.assessDamage(info, decoded, out)
}

// finishRendition writes a rendition's initialization segment and playlist, fixes its segments, and measures the result.
func (t Tools) finishRendition(
	ctx context.Context, dir string, j renditionJob, info *Info, plan timing,
) (Rendition, error) {
	playlist := path.Join(j.dir, playlistName)
	s, err := t.inspect(ctx, dir, playlist)
	if err != nil {
		return Rendition{}, err
	}
	editStart, end := s.segments[0].firstPTS, plan.repeatedSeconds
	if j.audio != nil {
		editStart, end = editStart+encoderDelay, 0 // each audio stream ends where it does in the source
	}
	folder := filepath.Join(dir, filepath.FromSlash(j.dir))
	if j.rung.Codec == av1Codec {
		if err := setSequenceHeader(filepath.Join(folder, s.init), filepath.Join(folder, s.segments[0].name)); err != nil {
			return Rendition{}, fmt.Errorf("set sequence header of %s: %w", playlist, err)
		}
	}
	if err := writeInit(filepath.Join(folder, s.init), j, info, plan, editStart); err != nil {
		return Rendition{}, fmt.Errorf("write initialization segment of %s: %w", playlist, err)
	}
	if err := s.fixSegments(folder, end); err != nil {
		return Rendition{}, fmt.Errorf("fix segments of %s: %w", playlist, err)
	}
	if err := writeFile(filepath.Join(dir, filepath.FromSlash(playlist)), []byte(s.playlist(info.Video.copyTarget()))); err != nil {
		return Rendition{}, fmt.Errorf("write playlist %s: %w", playlist, err)
	}
	if s, err = t.inspect(ctx, dir, playlist); err != nil {
		return Rendition{}, err
	}
	return describeRendition(s, j, info, plan), nil
}

// describeRendition describes what was measured from a rendition's files.
func describeRendition(s *renditionFiles, j renditionJob, info *Info, plan timing) Rendition {
	r := Rendition{
		Name: j.dir, Playlist: path.Join(j.dir, playlistName), Init: path.Join(j.dir, s.init), Codecs: s.codecs,
		Width: s.width, Height: s.height, Frames: s.frames, Duration: s.duration(), Segments: len(s.segments),
		Bytes: s.bytes, Channels: s.channels, SampleRate: s.sampleRate,
	}
	r.PeakBandwidth, r.AverageBandwidth = bandwidth(s)
	if j.audio != nil {
		r.Duration -= s.seconds(encoderDelay)
		r.Group, r.Source, r.Language, r.Title = j.rung.Name, j.audio.Index, j.audio.Language, j.audio.Title
		r.Role = j.audio.Role
		return r
	}
	r.HDR = s.picture.hdr()
	r.Source, r.FrameRate = info.Video.Index, s.frameRate(plan.firstFrameHold())
	return r
}
