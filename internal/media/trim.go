package media

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/cuelight/cuelight/internal/media/captions"
)

// Range is the part of a source that becomes the video, in seconds after ffmpeg's zero.
type Range struct {
	// Start and End are between two frames of the picture. The sound begins at Info.Start, and lasts for Info.Duration at most.
	Start float64 `json:"start,omitempty"`
	End   float64 `json:"end,omitempty"`
	// Seek is where decoding begins; 0 for the start of the file.
	Seek float64 `json:"seek,omitempty"`
}

const (
	// preroll is how much is decoded before a part: more than streams are apart in files, than decoders of sound need, and than
	// most captions are shown.
	preroll = 10.0
	// trimSlack is how much earlier than a time its frame may be: who copies a time of a player has milliseconds.
	trimSlack = 0.0005
	// provedFrames and provedSeconds are how much of a part is decoded to prove that seeking is exact.
	provedFrames, provedSeconds = 8, 0.5
)

// Trim makes info and packets, those of [Tools.ProbePackets], describe the part of a source from one time to before another, in seconds
// from the start of the whole video. The part begins with the first frame from start on, and ends with the last one before end; sound is
// cut at the same times. Where frames are shown for long, as slides are, it begins with the one that is shown at start. A
// [*RejectedError] means that the source has no such part.
func (t Tools) Trim(ctx context.Context, src string, info *Info, packets *Packets, start, end float64) error {
	source, err := filepath.Abs(src)
	if err != nil {
		return err
	}
	if start >= info.Duration {
		return reject("", "start is %.3f s, but the source lasts %.3f s; choose an earlier start", start, info.Duration)
	}
	if end <= start {
		return reject("", "end is %.3f s, which is not after start, %.3f s; choose a later end", end, start)
	}
	if end > info.Duration {
		info.warn("the video has all from %.3f s on: the source lasts %.3f s, less than until end", start, info.Duration)
	}
	zero, before := ffmpegZero(info), info.Start
	from, to := before+start, before+min(end, info.Duration)
	info.Range = &Range{}
	var times []float64
	if info.Video != nil {
		if times, err = info.trimPicture(packets, from, to); err != nil {
			return err
		}
	} else {
		info.Start, info.Duration = from, to-from
	}
	info.Chapters = captions.FitChapters(info.Chapters, before-info.Start, info.Duration)
	if err := info.trimSound(); err != nil {
		return err
	}
	if err := t.withStepCounter().seekPart(ctx, source, info, zero, times); err != nil {
		return err
	}
	if info.Video != nil {
		info.Video.FrameTimes = knownFrameTimes(info, packets)
	}
	return nil
}

// trimPicture keeps the frames between two times of the source's clock, and returns their times.
func (i *Info) trimPicture(p *Packets, from, to float64) ([]float64, error) {
	v := i.Video
	times, end := p.frameStarts(v), v.Start+v.Duration
	find := func(at float64) int { return sort.SearchFloat64s(times, at-trimSlack) }
	startOf := func(n int) float64 { return append(times, end)[n] }
	least := find(v.Start + v.Undecodable)
	first, last, isHeld := max(find(from), least), find(to), false
	if isHeld = first > least && startOf(first)-from > maxAudioLead; isHeld {
		first, last = first-1, max(first, last)
	}
	if last <= first {
		return nil, reject("", "there is no frame between start and end; choose a later end")
	}
	i.Range.Start, i.Range.End = times[first]-1, max(end, times[last-1])+1
	if first > 0 {
		i.Range.Start = (times[first-1] + times[first]) / 2
	}
	if last < len(times) {
		i.Range.End = (times[last-1] + times[last]) / 2
	}
	i.Start = times[first]
	if isHeld || i.Start-from > maxAudioLead {
		i.Start = from
	}
	next := startOf(last)
	if end = next; next-to > maxAudioLead {
		end = to
	}
	v.Start = max(times[first], i.Start)
	v.Duration = max(end-v.Start, min(frameTime(v), to-v.Start))
	i.Duration = max(to, v.Start+v.Duration) - i.Start
	times = times[first:last]
	v.describeFrames(times, next)
	if p != nil {
		p.times = slices.DeleteFunc(p.times, func(ticks int64) bool { at := p.seconds(ticks); return at < i.Range.Start || at > i.Range.End })
	}
	return times, nil
}

// describeFrames measures the frames of a part, and how long they are shown. In the source, another one follows at end.
func (v *Video) describeFrames(times []float64, end float64) {
	n := int64(len(times))
	v.Keyframes, v.Frames = max(1, v.Keyframes*n/max(v.Frames, 1)), n
	v.Repeated, v.MaxGap, v.Skipped, v.Undecodable = 0, 0, 0, 0
	for i, at := range times {
		next := end
		if i+1 < len(times) {
			next = times[i+1]
		}
		v.MaxGap = max(v.MaxGap, next-max(at, v.Start))
		if next == at {
			v.Repeated++
		}
	}
	if fps := float64(n) / v.Duration; math.Abs(fps/v.FPS-1) > 0.02 {
		v.FPS = fps // otherwise, that of the whole is more exact
	}
}

func (p *Packets) seconds(ticks int64) float64 {
	return float64(ticks) * float64(p.timeBase[0]) / float64(p.timeBase[1])
}

// frameStarts are when frames begin, as the packets say, or at equal intervals if they do not.
func (p *Packets) frameStarts(v *Video) (times []float64) {
	if p.check() == nil {
		// Packets may be fields.
		for all, i := sorted(p.times, 0), 0; i < len(all); i += max(1, int(math.Round(float64(len(all))/float64(v.Frames)))) {
			times = append(times, p.seconds(all[i]))
		}
	}
	if n := len(times); n > 0 && math.Abs(times[0]-v.Start) < 0.001 && times[n-1] < v.Start+v.Duration+0.001 {
		return times
	}
	times = make([]float64, v.Frames)
	for i := range times {
		times[i] = v.Start + float64(i)*v.Duration/float64(v.Frames)
	}
	return times
}

// trimSound sets the times of the sound.
func (i *Info) trimSound() error {
	silent := 0
	for n := range i.Audio {
		a := &i.Audio[n]
		end := min(a.Start+a.Duration, i.Start+i.Duration)
		a.Start = max(a.Start, i.Start)
		if a.Duration = end - a.Start; a.Duration <= 0 {
			a.Start, a.Duration = i.Start, 0
			silent++
		}
	}
	if i.Video == nil && silent == len(i.Audio) {
		return reject("", "there is no sound between start and end; choose other times")
	}
	return nil
}

// seekPart decides where decoding begins: shortly before the part, if the same comes out as from earlier on, with the frames at times of
// the source's clock. Without seeking, ffmpeg counts from zero, which may be another time.
func (t Tools) seekPart(ctx context.Context, source string, info *Info, zero float64, times []float64) error {
	r := *info.Range
	if seek := info.Start - info.FormatStart - preroll; seek > preroll && !isUntimed(info) {
		info.Range = &Range{r.Start - info.FormatStart, r.End - info.FormatStart, seek}
		got, err1 := t.firstOfPart(ctx, source, info, seek)
		want, err2 := t.firstOfPart(ctx, source, info, seek-preroll)
		if err := errors.Join(err1, err2); err != nil {
			return fmt.Errorf("trim source: %w", err)
		}
		if isSeekExact(got, want, info, times) {
			return nil
		}
	}
	info.FormatStart, info.Range = zero, &Range{Start: r.Start - zero, End: r.End - zero}
	return nil
}

// isSeekExact compares what two seeks find of the beginning of a part.
func isSeekExact(got, want *frameListReader, info *Info, times []float64) bool {
	if got == nil || want == nil || !slices.Equal(slices.Sorted(slices.Values(got.sums)), slices.Sorted(slices.Values(want.sums))) {
		return false
	}
	frames := 0
	for i, sum := range got.sums {
		if info.Video != nil && strings.HasPrefix(sum, "0 ") {
			at := float64(got.times[i]) * got.secondsPerTick
			if frames >= len(times) || math.Abs(at-times[frames]+info.Start) > 0.001 {
				return false
			}
			frames++
		}
	}
	return info.Video == nil || frames == min(provedFrames, len(times))
}

// firstOfPart decodes the beginning of a part after a seek: some frames as stream 0, and a moment of every sound. It returns nil if the
// decoder reports errors, which would be taken for damage of the part.
func (t Tools) firstOfPart(ctx context.Context, source string, info *Info, seek float64) (*frameListReader, error) {
	t = t.joining(source, info)
	c, err := t.capabilities(ctx)
	if err != nil {
		return nil, err
	}
	args, begin := t.ffmpegArgs("-max_error_rate", "1"), info.Start-info.FormatStart-seek
	if !c.fpsMode {
		args = append(args, "-vsync", "passthrough")
	}
	args = append(args, input(source, append(sourceOptions(info, c), seekPartOptions(seek)...)...)...)
	if v := info.Video; v != nil {
		args = append(args, "-map", "0:"+strconv.Itoa(v.Index), "-vf", fmt.Sprintf("%s,trim=end_frame=%d,setpts=PTS-%.6f/TB",
			info.Range.filter(seek), provedFrames, begin))
		args = append(append(args, fpsModeArgs("passthrough", c)...), "-enc_time_base", outputTimeBase, "-c:v", "rawvideo")
	}
	for i, a := range info.Audio {
		args = append(args, "-map", "0:"+strconv.Itoa(a.Index), fmt.Sprintf("-filter:a:%d", i),
			fmt.Sprintf("asetpts=PTS-%.6f/TB,atrim=start=0:end=%g", begin, provedSeconds))
	}
	list := newFrameListReader()
	list.keep = true
	report, err := t.run(ctx, command{
		tool: "ffmpeg", purpose: "find part", source: source, stdout: list, noProgress: true,
		args: append(args, "-c:a", "pcm_f32le", "-f", "framecrc", "-"),
	})
	if _, err = exitBySource(err); err != nil || report.errors > 0 {
		return nil, err
	}
	return list, nil
}

func seekPartOptions(seek float64) []string {
	if seek <= 0 {
		return nil
	}
	return []string{"-noaccurate_seek", "-ss", formatSeconds(seek)}
}

// filter drops the frames around the part, if decoding begins so many seconds after ffmpeg's zero.
func (r *Range) filter(seek float64) string {
	return fmt.Sprintf("trim=start=%.6f:end=%.6f", r.Start-seek, r.End-seek)
}
