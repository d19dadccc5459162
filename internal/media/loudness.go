package media

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"path/filepath"

	"github.com/cuelight/cuelight/internal/childproc"
)

const (
	// maxTruePeak is the highest true peak that a gain may lead to, in dBTP: encoding adds a little.
	maxTruePeak = -1.0
	// silence is the loudness, in LUFS, that ebur128 reports if no block is louder.
	silence = -70.0
)

// Loudness is that of an audio stream, after the conversion to the channels that are published.
type Loudness struct {
	// Integrated is in LUFS and TruePeak in dBTP, as ITU-R BS.1770 defines them.
	Integrated float64 `json:"integrated"`
	TruePeak   float64 `json:"true_peak"`
}

// MeasureLoudness decodes the sound of a source and sets the Loudness of each stream in info. The
// constant gain of a [Rung] with a target follows from it. A filter that changes its gain while it
// measures would change the dynamics, and would differ between the parts of a divided transcode.
func (t Tools) MeasureLoudness(ctx context.Context, src string, info *Info) error {
	ctx, cancel := t.withTimeLimit(ctx, info.Duration)
	defer cancel()
	t = t.withStepCounter()
	source, err := filepath.Abs(src)
	if err != nil {
		return err
	}
	t = t.joining(source, info)
	c, err := t.capabilities(ctx)
	if err != nil {
		return err
	}
	for i := range info.Audio {
		if info.Audio[i].Loudness, err = t.measureLoudness(ctx, source, info, &info.Audio[i], c); err != nil {
			return fmt.Errorf("measure loudness: %w", err)
		}
	}
	return nil
}

func (t Tools) measureLoudness(ctx context.Context, source string, info *Info, a *Audio, c capabilities) (*Loudness, error) {
	sounds, err := soundDecoder{tools: t, source: source, info: info, found: c}.start(ctx, []*Audio{a})
	if err != nil {
		return nil, err
	}
	options, stream := decodedInput(info, 0)
	args := append(t.ffmpegArgs(), options...)
	args = append(args, "-map", fmt.Sprintf("0:%d", stream), "-af",
		evenSound+",ebur128=metadata=1:peak=true,ametadata=mode=print:file=-", "-f", "null", "-")
	r := newLoudnessReader()
	_, err = sounds.finish(t.run(ctx, command{
		tool: "ffmpeg", purpose: "loudness", args: args, stdout: r, pipes: sounds.pipes,
	}))
	if _, err := exitBySource(err); err != nil {
		return nil, err
	}
	if r.integrated <= silence || r.peak <= 0 {
		return nil, nil // transcode finds out whether it can be decoded
	}
	return &Loudness{Integrated: r.integrated, TruePeak: math.Round(2000*math.Log10(r.peak)) / 100}, nil
}

// loudnessReader parses the output of ffmpeg's metadata filter. The values of ebur128 are those from the
// start, so the last ones are valid. Peaks are amplitudes, 1 is full scale.
type loudnessReader struct {
	io.Writer
	integrated, peak float64
}

func newLoudnessReader() *loudnessReader {
	r := &loudnessReader{integrated: silence}
	r.Writer = childproc.Lines(r.line)
	return r
}

func (r *loudnessReader) line(line []byte) {
	key, value, _ := bytes.Cut(line, []byte("="))
	number, ok := jsonNumber(value).seconds()
	switch {
	case !ok:
	case string(key) == "lavfi.r128.I":
		r.integrated = number
	case bytes.HasPrefix(key, []byte("lavfi.r128.true_peaks_ch")):
		r.peak = max(r.peak, number)
	}
}

// gain is what a rendition's sound is amplified by, in dB. It is less than the target asks for if the
// sound would clip.
func (j renditionJob) gain() float64 {
	if j.audio == nil || j.audio.Loudness == nil || j.rung.Loudness >= 0 {
		return 0
	}
	gain := j.rung.Loudness - j.audio.Loudness.Integrated
	if gain > 0 {
		gain = min(gain, max(maxTruePeak-j.audio.Loudness.TruePeak, 0))
	}
	return math.Round(gain*100) / 100
}

func (j renditionJob) gainFactor() float64 { return math.Pow(10, j.gain()/20) }

func gainFilter(j renditionJob) string {
	if j.gain() == 0 {
		return ""
	}
	return fmt.Sprintf(",volume=%.2fdB:precision=float", j.gain())
}

// QuieterThan returns how many dB the rendition of the stream stays below a target in LUFS, because its
// peaks would clip; 0 if it does not.
func (a Audio) QuieterThan(target float64) float64 {
	if a.Loudness == nil {
		return 0
	}
	j := renditionJob{rung: Rung{Loudness: target}, audio: &a}
	return max(target-a.Loudness.Integrated-j.gain(), 0)
}
