package media

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
)

// PictureCopy says how the picture of a source is copied for the rung of its size. Segments can begin only at its keyframes, so those of
// the other renditions begin there, too.
type PictureCopy struct {
	// Starts are when segments begin, in ticks of 1/120000 s after the first frame.
	Starts []int64 `json:"starts"`
	// Delay is how many frames B-frames delay the picture.
	Delay int `json:"delay,omitempty"`
}

const (
	// maxKeyframeGap is the longest time between keyframes, in ticks: with it, segments last up to 17.5 s, of fewer than copyInterval
	// frames.
	maxKeyframeGap = videoTimescale * 21 / 2
	copyInterval   = 1200
	// minCopyGap is the shortest time between frames, in seconds, with which keyframes are certain.
	minCopyGap = 0.004
	// maxCopyStarts limits what is stored, and an option of encoders. It is enough for 14 hours.
	maxCopyStarts = 8400
	// copyRounding is how far times of packets may be from those of frames, in ticks: filters round to the clock of the source, such as
	// milliseconds.
	copyRounding = videoTimescale/1000 + 2
)

// copyStarts are when segments begin if a rendition is a copy; nil if none is.
func (v *Video) copyStarts() []int64 {
	if v == nil || v.Copy == nil {
		return nil
	}
	return v.Copy.Starts
}

// isCopy reports whether a rendition of this size and codec is a copy.
func (v *Video) isCopy(width, height int, codec string) bool {
	return v.copyStarts() != nil && width == v.CodedWidth && height == v.CodedHeight && codec == h264Codec
}

func isCopy(j renditionJob) bool { return j.rung.Copied }

// copyEnd is when the last frame of a copy ends.
func (v *Video) copyEnd() int64 { return int64(math.Round(v.Duration * videoTimescale)) }

// copyTarget is the longest segment of a copy in seconds, rounded. The playlists of a video must have the same target duration.
func (v *Video) copyTarget() (seconds int) {
	for i, at := range v.copyStarts() {
		next := v.copyEnd()
		if i+1 < len(v.Copy.Starts) {
			next = v.Copy.Starts[i+1]
		}
		seconds = max(seconds, int(math.Round(float64(next-at)/videoTimescale)))
	}
	return seconds
}

// PlanCopy decides whether the picture of a source is copied for its rung, and stores in info how; otherwise it returns the reason. It
// reads the whole source, and checks the packets as those of renditions. info and packets are those of [Tools.ProbePackets].
func (t Tools) PlanCopy(ctx context.Context, src string, info *Info, packets *Packets, rungs []Rung) (reason string, err error) {
	t = t.withStepCounter()
	source, err := filepath.Abs(src)
	if err != nil {
		return "", err
	}
	c, err := t.capabilities(ctx)
	if err != nil {
		return "", fmt.Errorf("plan copy: %w", err)
	}
	p := &copyPlanner{info: info, highest: -1, key: math.MaxInt64}
	if p.job, reason = copiable(info, rungs, c); reason != "" {
		return reason, nil
	}
	if p.times, err = newFrameTimes(info, packets); err != nil {
		return err.Error(), nil
	}
	ctx, cancel := t.withTimeLimit(ctx, info.Duration)
	defer cancel()
	p.reader.frame = p.add
	err = t.copyPackets(ctx, source, info, messageUnits, &p.reader)
	exit, otherErr := exitBySource(err)
	switch {
	case p.reader.err != nil:
		return p.reader.err.Error(), nil
	case exit != nil:
		return "ffmpeg cannot copy it", nil
	case otherErr != nil:
		return "", fmt.Errorf("plan copy: %w", otherErr)
	}
	if info.Video.Copy, err = p.plan(); err != nil {
		return err.Error(), nil
	}
	return "", nil
}

// copiable says which rendition may be a copy, or why none is, as far as that can be said without reading the source.
func copiable(info *Info, rungs []Rung, c capabilities) (job renditionJob, reason string) {
	v := info.Video
	if v == nil || v.Codec != "h264" {
		return job, "its picture is not in H.264"
	}
	i := slices.IndexFunc(rungs, func(r Rung) bool { return r.Codec == h264Codec && r.Width == v.CodedWidth && r.Height == v.CodedHeight })
	colours, plan := v.colours(), planTiming(info)
	switch {
	case i < 0 || v.Rotation != 0 || v.Mirrored || v.SAR != 1:
		reason = "no rendition in H.264 has its size and shape"
	case !slices.Contains(seekableContainers[:2], info.Container):
		reason = "it is neither MP4, MOV nor Matroska"
	case v.Interlaced || v.Telecined:
		reason = "it is interlaced"
	case info.Range != nil:
		reason = "the video is a part of it"
	case v.FullRange || colours.needsZscale() || colours.matrix != "bt709":
		reason = "its colours are not BT.709 in limited range"
	case plan.dropsFrames || plan.lead > 0 || v.MinGap < minCopyGap || len(v.FrameTimes) == 0:
		reason = cmp.Or(uncertainTimes(info), "its frames must be shown at other times, or theirs are too irregular")
	case !c.fpsMode:
		reason = "ffmpeg 5.1 is needed"
	case !c.forcesAV1 && slices.ContainsFunc(rungs, func(r Rung) bool { return r.Codec == av1Codec }):
		reason = "ffmpeg 7 is needed next to renditions in AV1"
	default:
		job = renditionJob{rung: rungs[i], dir: rungs[i].Name}
	}
	return job, reason
}

// copyPlanner checks the packets of a source, and decides where segments begin.
type copyPlanner struct {
	reader       copyReader
	info         *Info
	job          renditionJob
	times        *frameTimes
	shown        []int64 // when the packets are shown, in decoding order
	keys         []copyKey
	bytes        int64
	highest, key int64 // of shown: the latest, and the last keyframe
}

// copyKey is a keyframe: when it is shown, and what is before it.
type copyKey struct {
	at     int64
	frames int
	bytes  int64
}

func (p *copyPlanner) add(f sample, data []byte) error {
	n, err := len(p.shown), p.reader.files.checkPicture(f, data)
	if n == 0 {
		err = cmp.Or(p.reader.files.checkRung(p.job, p.info, planTiming(p.info)), err)
	}
	if f.isKey && f.pts <= p.highest || !f.isKey && f.pts <= p.key {
		err = errors.New("a frame is shown on the other side of it")
	}
	if err != nil {
		return fmt.Errorf("the frame at %.2f s is not one of a closed group of pictures: %w", float64(f.pts)/videoTimescale, err)
	}
	if f.isKey {
		p.keys, p.key = append(p.keys, copyKey{f.pts, n, p.bytes}), f.pts
	}
	p.shown, p.highest, p.bytes = append(p.shown, f.pts), max(p.highest, f.pts), p.bytes+f.size
	return p.checkRate(p.info.Video.Duration, p.bytes)
}

// checkRate allows what encoders may do: they may fill a buffer of two seconds in addition.
func (p *copyPlanner) checkRate(seconds float64, bytes int64) error {
	if rate := p.job.rung.VideoBitrate; float64(8*bytes) > float64(rate)*(seconds+2) {
		return fmt.Errorf("its bitrate is higher than that of %s, %d kbit/s", p.job.rung.Name, rate/1000)
	}
	return nil
}

// plan decides where segments begin: at the first keyframe from each multiple of their duration on.
func (p *copyPlanner) plan() (*PictureCopy, error) {
	copied, wanted, sorted := &PictureCopy{}, p.times.shown, slices.Sorted(slices.Values(p.shown))
	if !slices.EqualFunc(sorted, wanted, func(a, b int64) bool { return max(a-b, b-a) <= copyRounding }) || wanted[0] != 0 {
		return nil, errors.New("its packets are not its frames")
	}
	for i, at := range p.shown {
		place, _ := slices.BinarySearch(sorted, at)
		copied.Delay = max(copied.Delay, i-place)
	}
	if most := p.reader.files.picture.reordered; most >= 0 && copied.Delay > most {
		return nil, errors.New("its parameters allow fewer B-frames than it has")
	}
	starts, end := p.keys[:1:1], copyKey{p.info.Video.copyEnd(), len(sorted), p.bytes}
	for i, next := range append(p.keys[1:], end) {
		if gap := next.at - p.keys[i].at; gap > maxKeyframeGap {
			return nil, fmt.Errorf("its keyframes are up to %.1f s apart; the limit is 10 s", float64(gap)/videoTimescale)
		}
		isLater := (next.at+keyframeSlack)/p.times.segment > (starts[len(starts)-1].at+keyframeSlack)/p.times.segment
		if isLater && end.at-next.at >= minTailTicks {
			starts = append(starts, next)
		}
	}
	for i, next := range append(starts[1:], end) {
		k := starts[i]
		if err := p.checkRate(float64(next.at-k.at)/videoTimescale, next.bytes-k.bytes); err != nil {
			return nil, err
		}
		if next.frames-k.frames <= copied.Delay || i > maxCopyStarts {
			return nil, errors.New("its segments would be too short, or too many")
		}
		copied.Starts = append(copied.Starts, wanted[k.frames])
	}
	return copied, nil
}
