package media

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
)

// countSlack is the share of the frames by which packets and frames may differ
// before the source is decoded to count them.
const countSlack = 0.01

// CheckDelivered decides whether the files in dir, which a worker delivered, are a
// sound transcode of the source, and describes them. It writes the playlists and the
// head of each initialization segment itself, counts frames and seconds, and compares
// sound and pictures with the source as Transcode does. dir must have only files that [ExpectedFile] allows; nobody else
// may write to it meanwhile. The Output has no storyboard.
//
// claimed is the worker's own Output, or nil. Of it, only three hints are used: that
// the source is damaged, which is then measured by decoding the source once more;
// that the colours are approximate; and the names of the encoders.
//
// A [*RefusedError] means that the files are wrong, a [*RejectedError] that the
// source is. All other errors are about this host or this attempt.
func (t Tools) CheckDelivered(
	ctx context.Context, src string, info *Info, rungs []Rung, dir string, claimed *Output,
) (*Output, error) {
	if claimed == nil {
		claimed = &Output{}
	}
	u := &deliveryCheck{tools: t, info: info, rungs: rungs, dir: dir, claimed: claimed}
	if err := u.do(ctx, src, u.run); err != nil {
		return nil, err
	}
	return u.out, nil
}

// deliveryCheck is one run of CheckDelivered.
type deliveryCheck struct {
	tools       Tools
	source, dir string
	info        *Info
	rungs       []Rung
	claimed     *Output
	plan        timing
	cut         *chunkCut // nil if a whole transcode is checked, or all audio
	found       capabilities
	video       []writtenRendition
	audio       []writtenRendition
	out         *Output
}

// do prepares a check and runs it.
func (u *deliveryCheck) do(ctx context.Context, src string, check func(context.Context) error) (err error) {
	ctx, cancel := u.tools.withTimeLimit(ctx, u.info.decodedSeconds())
	defer cancel()
	if u.source, err = filepath.Abs(src); err != nil {
		return err
	}
	u.tools, u.plan = u.tools.joining(u.source, u.info).withStepCounter(), planTiming(u.info)
	u.out = &Output{Video: []Rendition{}, Audio: []Rendition{}, Warnings: []string{}}
	if u.found, err = u.tools.capabilities(ctx); err == nil {
		err = check(ctx)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // the end of the context caused it
	}
	if err != nil {
		return fmt.Errorf("check delivered files: %w", err)
	}
	return nil
}

func (u *deliveryCheck) run(ctx context.Context) error {
	delivered, err := readDelivery(u.dir, expectAll(u.info, u.rungs))
	if err != nil {
		return err
	}
	for _, j := range allJobs(u.info, u.rungs) {
		if err := u.addRendition(ctx, j, len(delivered[j.dir])); err != nil {
			return err
		}
	}
	if len(u.video)+len(u.audio) == 0 {
		return refuse("", "there are no renditions")
	}
	if err := u.countFrames(ctx); err != nil {
		return err
	}
	u.out.summarize()
	if err := u.tools.check(ctx, u.info, u.dir, u.out); err != nil {
		return refuseMismatch(err)
	}
	return u.compare(ctx)
}

// compare compares sound and pictures with the source.
func (u *deliveryCheck) compare(ctx context.Context) error {
	sound := soundCheck{u.tools, u.source, u.info, u.found, jobsOf(u.audio)}
	if err := sound.run(ctx, u.dir, u.out); err != nil {
		return refuseMismatch(err)
	}
	if u.out.DecodeErrors > 0 {
		return nil // decoders show different pictures of a damaged source
	}
	return refuseMismatch(pictureCheck{u.tools, u.source, u.dir, u.info, u.plan, u.cut, u.found, u.video}.run(ctx))
}

func jobsOf(list []writtenRendition) (jobs []renditionJob) {
	for _, r := range list {
		jobs = append(jobs, r.renditionJob)
	}
	return jobs
}

// addRendition reads a delivered rendition and writes its playlist.
func (u *deliveryCheck) addRendition(ctx context.Context, j renditionJob, segments int) error {
	if segments == 0 && j.audio != nil {
		return u.acceptMissing(ctx, j)
	}
	if segments == 0 {
		return refuse(j.dir, "it is missing")
	}
	folder := filepath.Join(u.dir, j.dir)
	p, err := u.checkForm(j, 0, segments)
	if err != nil {
		return refuseContent(j.dir, err)
	}
	s, err := u.tools.readListed(ctx, folder, p)
	if err != nil {
		return refuseContent(j.dir, err)
	}
	editStart := s.segments[0].firstPTS
	if j.audio != nil {
		editStart += encoderDelay
	}
	if last := s.segments[segments-1]; segments > 1 && s.seconds(last.length) < minTailSeconds {
		return refuse(j.dir, "its last segment is shorter than %.1f s", minTailSeconds)
	}
	if err := writeInit(filepath.Join(folder, initName), j, u.info, u.plan, editStart); err != nil {
		return refuseContent(j.dir, err)
	}
	if err := writeFile(filepath.Join(folder, playlistName), []byte(s.playlist(u.info.Video.copyTarget()))); err != nil {
		return err
	}
	if s, err = u.tools.inspect(ctx, u.dir, j.dir+"/"+playlistName); err != nil {
		return refuseContent(j.dir, err)
	}
	return u.describe(writtenRendition{j, s})
}

// checkForm checks the initialization segment and the boxes of so many segments from one on, and lists them.
func (u *deliveryCheck) checkForm(j renditionJob, first, segments int) (*playlist, error) {
	folder := filepath.Join(u.dir, j.dir)
	if err := writeInit(filepath.Join(folder, initName), j, u.info, u.plan, 0); err != nil {
		return nil, fmt.Errorf("initialization segment: %w", err)
	}
	p := &playlist{init: initName}
	for n := first; n < first+segments; n++ {
		name := segmentName(n)
		if err := checkTree(filepath.Join(folder, name), segmentBoxes); err != nil {
			return nil, fmt.Errorf("segment %d: %w", n, err)
		}
		p.segments = append(p.segments, playlistEntry{name: name})
	}
	return p, nil
}

func (u *deliveryCheck) describe(r writtenRendition) error {
	d := describeRendition(r.files, r.renditionJob, u.info, u.plan)
	if r.audio != nil {
		u.audio, u.out.Audio = append(u.audio, r), append(u.out.Audio, d)
		return nil
	}
	if rate := d.FrameRate; math.IsNaN(rate) || rate <= 0 || rate > maxRateWithSlack*1.05 {
		return refuse(r.dir, "it has %.3g frames a second", rate)
	}
	u.video, u.out.Video = append(u.video, r), append(u.out.Video, d)
	return nil
}

// acceptMissing allows an audio rendition to be missing if this host cannot decode
// its stream either.
func (u *deliveryCheck) acceptMissing(ctx context.Context, j renditionJob) error {
	frames := newFrameListReader()
	args := u.tools.ffmpegArgs("-max_error_rate", "1")
	args = append(args, input(u.source, probedInputOptions(u.info, u.found.decoders)...)...)
	args = append(args, "-map", fmt.Sprintf("0:%d", j.audio.Index), "-f", "framecrc", "-")
	cmd := command{tool: "ffmpeg", purpose: "missing audio", args: args, source: u.source, stdout: frames}
	_, err := u.tools.run(ctx, cmd)
	if _, err := exitBySource(err); err != nil {
		return err
	}
	if frames.frames > 0 {
		return refuse(j.dir, "it is missing")
	}
	u.out.warnOfMissing(j)
	return nil
}

// countFrames compares the number and times of the delivered frames with the
// packets that ingest counted. If they differ, or if the worker found damage, it
// decodes the source to count the frames.
func (u *deliveryCheck) countFrames(ctx context.Context) error {
	if len(u.video) == 0 {
		if u.claimed.DecodeErrors > 0 {
			return u.measureSource(ctx)
		}
		return nil
	}
	o, v := u.out, u.info.Video
	u.nameEncoders()
	o.Constant, o.Expected = u.plan.repeatedFrames > 0, u.out.Video[0].Frames
	if v.colours().needsZscale() && (!u.found.zscale || slices.Contains(u.claimed.Warnings, approximateColours)) {
		o.warn(approximateColours)
	}
	o.DecodedEnd = u.info.pictureEnd()
	o.FrameTimes = v.FrameTimes
	if u.claimed.DecodeErrors > 0 || !u.isCountPlausible() || u.video[0].files.compareTimes(o.FrameTimes) != nil {
		return u.measureSource(ctx)
	}
	o.Decoded = v.decodableFrames()
	if !o.Constant && !u.plan.dropsFrames && !v.Telecined {
		o.Decoded = (o.Expected + v.framesPerDecoded() - 1) / v.framesPerDecoded()
	}
	o.Distinct = o.Decoded
	return nil
}

// nameEncoders takes the names of the encoders from the worker, if it is one of ours.
func (u *deliveryCheck) nameEncoders() {
	if _, ok := findHardware(u.claimed.Encoder); ok || u.claimed.Encoder == softwareEncoder {
		u.out.Encoder = u.claimed.Encoder
	}
	if failed, ok := findHardware(u.claimed.FailedEncoder); ok && u.out.Encoder != "" {
		u.out.FailedEncoder = failed.name
		u.out.warn("%s failed on the worker's host; encoded with %s", failed.name, u.out.Encoder)
	}
}

// isCountPlausible reports whether the frames are as many as the packets say.
func (u *deliveryCheck) isCountPlausible() bool {
	v, frames := u.info.Video, u.out.Expected
	packets := v.outputFrames(v.decodableFrames())
	slack := int64(2 + countSlack*float64(packets))
	length := u.video[0].files.duration()
	switch {
	case u.plan.dropsFrames && u.out.Constant:
		return false
	case u.plan.dropsFrames:
		// After a kept frame, one is dropped only within a sixtieth of a second.
		longest := v.MaxGap + 1/maxRateWithSlack + 0.002
		return u.video[0].files.longestStep() <= longest && float64(frames) <= maxRateWithSlack*length+2
	case u.out.Constant:
		return frames >= packets-2 && frames <= packets+int64(u.plan.repeatedFrames)+2
	}
	isLong := math.Abs(length-u.out.DecodedEnd) <= durationTolerance(u.info, u.out)
	return isLong && frames >= packets-slack && frames <= packets+slack
}

// longestStep is the longest time between two frames, in seconds.
func (s *renditionFiles) longestStep() float64 {
	longest := int64(0)
	for i, g := range s.segments {
		longest = max(longest, g.maxStep)
		if i > 0 {
			longest = max(longest, g.firstPTS-s.segments[i-1].lastPTS)
		}
	}
	return s.seconds(longest)
}
