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

// MeasureLoudness decodes the sound of a source, with the channels of each rung, and sets the loudness of each stream in
// info. The constant gain of a [Rung] with a target follows from it. A filter that changes its gain while it
// measures would change the dynamics, and would differ between the parts of a divided transcode.
func (t Tools) MeasureLoudness(ctx context.Context, src string, info *Info, rungs []Rung) error {
	ctx, cancel := t.withTimeLimit(ctx, info.decodedSeconds())
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
	_, audio := renditionJobs(info, rungs)
	for _, sound := range soundsOf(audio) {
		loudness, err := t.measureLoudness(ctx, source, info, sound, c)
		if err != nil {
			return fmt.Errorf("measure loudness: %w", err)
		}
		*sound.loudness() = loudness
	}
	return nil
}

func (t Tools) measureLoudness(ctx context.Context, source string, info *Info, sound decodedSound, c capabilities) (*Loudness, error) {
	sounds, err := soundDecoder{tools: t, source: source, info: info, found: c}.start(ctx, []decodedSound{sound})
	if err != nil {
		return nil, err
	}
	options, stream := decodedInput(info, 0, sound.channels)
	args := append(t.ffmpegArgs(), options...)
	args = append(args, "-map", fmt.Sprintf("0:%d", stream), "-af",
		evenSound(sound.channels)+",ebur128=metadata=1:peak=true,ametadata=mode=print:file=-", "-f", "null", "-")
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

// loudness is where the loudness of a sound is.
func (s decodedSound) loudness() **Loudness {
	if s.channels == surround {
		return &s.audio.SurroundLoudness
	}
	return &s.audio.Loudness
}

// gain is what a rendition's sound is amplified by, in dB. It is less than the target asks for if the
// sound would clip.
func (j renditionJob) gain() float64 {
	if j.audio == nil || j.rung.Loudness >= 0 {
		return 0
	}
	measured := *j.sound().loudness()
	if measured == nil {
		return 0
	}
	gain := j.rung.Loudness - measured.Integrated
	if gain > 0 {
		gain = min(gain, max(maxTruePeak-measured.TruePeak, 0))
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

// QuieterThan returns how many dB a rendition of the stream stays below a target in LUFS, because its
// peaks would clip; 0 if none does.
func (a Audio) QuieterThan(target float64) (missing float64) {
	for channels := range layouts {
		j := renditionJob{rung: Rung{Loudness: target, Channels: channels}, audio: &a}
		if measured := *j.sound().loudness(); measured != nil {
			missing = max(missing, target-measured.Integrated-j.gain())
		}
	}
	return missing
}
