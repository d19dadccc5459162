package media

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/cuelight/cuelight/internal/childproc"
)

const (
	// levelSeconds is the length of a block whose level is measured, at levelRate samples a second.
	levelSeconds, levelRate = 0.05, 8000
	// lostBlocks are so many blocks of silence in place of sound, or the other way round, that they are an error.
	lostBlocks = 40
	// Levels are powers; 1 is full scale. Below quietLevel, a block is not compared. Below the share audible of the loudest
	// block it may be lost in the encoder's noise, and below the share inaudible of what it should be it is silent.
	quietLevel, audible, inaudible = 1e-5, 1e-3, 1e-5
	// lagWindow is how many blocks are compared to find out whether sound is late, and maxLag how late it may be found
	// to be. Less than lateBlocks is not an error. At the lag found, levels must correlate by minLagMatch, and by
	// lagGain more than without a lag. Where levels differ by less than a factor of ten to the minSpread, nothing shows.
	lagWindow, maxLag, lateBlocks   = 600, 40, 3
	minLagMatch, lagGain, minSpread = 0.8, 0.3, 0.4
	// loudest and quietest are how far the power of all sound may be from what its gain makes of a mono or stereo source:
	// mono becomes two channels.
	loudest, quietest = 4.0, 0.1
)

// soundCheck compares the sound of renditions with that of their source.
type soundCheck struct {
	tools  Tools
	source string
	info   *Info
	found  capabilities
	audio  []renditionJob
}

// run compares the levels of the sound in a directory with those of the source, by time. It decodes both again
// and mixes nothing, so that a fault of the filters that made the sound is seen. What is wrong is an error, or a
// warning if the source is damaged.
func (s soundCheck) run(ctx context.Context, dir string, out *Output) error {
	levels := map[int][]float64{} // of the sounds of the source
	for _, rendition := range out.Audio {
		i := slices.IndexFunc(s.audio, func(j renditionJob) bool { return j.dir == rendition.Name })
		if i < 0 {
			continue // Check refuses it
		}
		job := s.audio[i]
		want, ok := levels[rendition.Source]
		if !ok {
			var err error
			if want, err = s.sourceLevels(ctx, job.audio); err != nil {
				return fmt.Errorf("check %s: %w", rendition.Name, err)
			}
			levels[rendition.Source] = want
		}
		got, err := s.renditionLevels(ctx, dir, rendition)
		if err != nil {
			return fmt.Errorf("check %s: %w", rendition.Name, err)
		}
		factor := 0.0
		if job.audio.Channels <= 2 { // how loud the downmix of others is depends on their layout
			factor = job.gainFactor() * job.gainFactor()
		}
		wrong := compareLevels(want, got, factor)
		switch {
		case wrong != nil && out.DecodeErrors > 0:
			out.warn("the source is damaged: the sound %s: %v", rendition.Name, wrong)
		case wrong != nil:
			return fmt.Errorf("check %s: %w: %w", rendition.Name, ErrMismatch, wrong)
		}
	}
	return nil
}

// sourceLevels are the levels of a sound of the source, by the time of the output.
func (s soundCheck) sourceLevels(ctx context.Context, a *Audio) ([]float64, error) {
	tracks := a.Tracks
	if len(tracks) == 0 {
		tracks = []int{a.Index}
	}
	plan, limit := planTiming(s.info), []string(nil)
	seconds := plan.maxSeconds
	if s.info.Range != nil {
		seconds = s.info.Duration
		limit = []string{"-t", formatSeconds(plan.begin() + seconds)}
	}
	var sum []float64
	for _, track := range tracks {
		args := input(s.source, append(probedInputOptions(s.info, s.found.decoders), plan.inputOptions()...)...)
		args = append(append(args, "-map", "0:"+strconv.Itoa(track)), limit...)
		channels := a.Channels / len(tracks)
		reader := newLevelReader(seconds, channels)
		if err := s.measureLevels(ctx, command{source: s.source, stdout: reader}, args, plan.begin(), readAllStreams(s.info)); err != nil {
			return nil, err
		}
		sum = addLevels(sum, reader.levels)
	}
	return sum, nil
}

func addLevels(a, b []float64) []float64 {
	if len(a) < len(b) {
		a, b = b, a
	}
	for i, v := range b {
		a[i] += v
	}
	return a
}

// renditionLevels are the levels of a rendition.
func (s soundCheck) renditionLevels(ctx context.Context, dir string, rendition Rendition) ([]float64, error) {
	reader, err := openRendition(dir, rendition)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	args := []string{"-protocol_whitelist", "pipe", "-codec_whitelist", "aac", "-f", "mov", "-i", "pipe:0", "-map", "0:a"}
	levels := newLevelReader(planTiming(s.info).maxSeconds, rendition.Channels)
	err = s.measureLevels(ctx, command{stdin: reader, stdout: levels}, args, 0, nil)
	return levels.levels, err
}

// measureLevels decodes what the arguments select, for a [levelReader].
func (s soundCheck) measureLevels(ctx context.Context, cmd command, args []string, zero float64, more []string) error {
	filter := fmt.Sprintf("asetpts=PTS-%.6f/TB,aresample=%d,asetnsamples=n=%d:p=0,"+
		"astats=metadata=1:reset=1:measure_overall=none:measure_perchannel=RMS_level,ametadata=mode=print:file=-",
		zero, levelRate, int(levelRate*levelSeconds))
	s.tools.Threads = 1
	cmd.tool, cmd.purpose = "ffmpeg", "sound levels"
	cmd.args = slices.Concat(s.tools.ffmpegArgs("-max_error_rate", "1"), args, []string{"-af", filter, "-f", "null", "-"}, more)
	_, err := s.tools.run(ctx, cmd)
	_, err = exitBySource(err)
	return err
}

// levelReader parses the output of ffmpeg's metadata filter: the level of each channel of each block.
type levelReader struct {
	io.Writer
	levels []float64
	at     int    // the current block; -1 if it is not measured
	limit  int    // of blocks
	skip   string // the channel of low frequencies, which is left out of the downmix
}

func newLevelReader(maxSeconds float64, channels int) *levelReader {
	r := &levelReader{at: -1, limit: int(maxSeconds / levelSeconds)}
	if channels >= 6 {
		r.skip = "4"
	}
	r.Writer = childproc.Lines(r.line)
	return r
}

func (r *levelReader) line(line []byte) {
	if _, value, ok := bytes.Cut(line, []byte("pts_time:")); ok {
		r.at = -1
		if pts, ok := jsonNumber(bytes.TrimSpace(value)).seconds(); ok && pts > -levelSeconds/2 {
			r.at = int(math.Floor(pts/levelSeconds + 0.5))
		}
		return
	}
	rest, ok := bytes.CutPrefix(line, []byte("lavfi.astats."))
	channel, value, found := bytes.Cut(rest, []byte(".RMS_level="))
	if !ok || !found || r.at < 0 || r.at >= r.limit {
		return
	}
	for len(r.levels) <= r.at {
		r.levels = append(r.levels, 0)
	}
	if decibels, ok := jsonNumber(bytes.TrimSpace(value)).seconds(); ok && string(channel) != r.skip {
		r.levels[r.at] += math.Pow(10, decibels/10)
	}
}

// compareLevels says how the levels of a result differ from those of its source; nil if they do not. factor is by which their
// power should be multiplied; 0 if that is not known.
func compareLevels(want, got []float64, factor float64) error {
	want, got = sameLength(want, got)
	if len(want) == 0 || slices.Max(want) < quietLevel {
		return nil
	}
	gain := sumOf(got) / sumOf(want)
	if gain < inaudible {
		return fmt.Errorf("it is silent, but the source is not")
	}
	if factor > 0 && (gain > loudest*factor || gain < quietest*factor) {
		return fmt.Errorf("it has %.4f of the source's power instead of %.4f", gain, factor)
	}
	if at, ok := lostSound(want, got, gain); ok {
		return fmt.Errorf("it is silent from %v on, where the source is not", atBlock(at))
	}
	if at, ok := lostSound(got, want, 1/gain); ok {
		return fmt.Errorf("there is sound from %v on, where the source is silent", atBlock(at))
	}
	for from := 0; from < len(want); from += lagWindow {
		to := min(from+lagWindow, len(want))
		if lag := lagOf(want, got, from, to); lag != 0 {
			return fmt.Errorf("after %v it is at other times than in the source, by %.2f s", atBlock(from),
				float64(lag)*levelSeconds)
		}
	}
	return nil
}

func sameLength(a, b []float64) ([]float64, []float64) {
	n := max(len(a), len(b))
	return append(slices.Clone(a), make([]float64, n-len(a))...), append(slices.Clone(b), make([]float64, n-len(b))...)
}

func sumOf(levels []float64) float64 {
	sum := 0.0
	for _, v := range levels {
		sum += v
	}
	return sum
}

func atBlock(n int) time.Duration {
	return time.Duration(float64(n) * levelSeconds * float64(time.Second))
}

// lostSound finds the first long run of blocks that can be heard in one sound and not in the other.
func lostSound(from, in []float64, gain float64) (at int, ok bool) {
	floor := max(slices.Max(from)*audible, quietLevel)
	run := 0
	for i, level := range from {
		if level < floor || in[i] > level*gain*inaudible {
			run = 0
			continue
		}
		if run++; run == lostBlocks {
			return i + 1 - run, true
		}
	}
	return 0, false
}

// lagOf is by how many blocks the result is later than the source in a window; 0 if it is not, or if that is not
// certain.
func lagOf(want, got []float64, from, to int) int {
	atZero, _ := levelMatch(want, got, from, to, 0)
	best, lag := atZero, 0
	for d := 1; d <= maxLag; d++ {
		for _, signed := range []int{d, -d} {
			if match, ok := levelMatch(want, got, from, to, signed); ok && match > best+0.02 {
				best, lag = match, signed
			}
		}
	}
	if lag > -lateBlocks && lag < lateBlocks || best < minLagMatch || best-atZero < lagGain {
		return 0
	}
	return lag
}

// levelMatch is the correlation of the logarithms of the levels; ok is false if they hardly vary.
func levelMatch(want, got []float64, from, to, lag int) (match float64, ok bool) {
	var n, x, y, xx, yy, xy float64
	for i := from; i < to; i++ {
		if i+lag < 0 || i+lag >= len(got) {
			continue
		}
		a, b := math.Log10(want[i]+quietLevel), math.Log10(got[i+lag]+quietLevel)
		n, x, y, xx, yy, xy = n+1, x+a, y+b, xx+a*a, yy+b*b, xy+a*b
	}
	if n < maxLag {
		return 0, false
	}
	varX, varY := xx/n-x*x/n/n, yy/n-y*y/n/n
	if varX < minSpread*minSpread || varY < minSpread*minSpread {
		return 0, false
	}
	return (xy/n - x*y/n/n) / math.Sqrt(varX*varY), true
}
