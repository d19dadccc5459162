package media

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/media/captions"
)

const (
	whisper = "whisper-cli"
	// DetectLanguage stands for a language that whisper-cli is to find out.
	DetectLanguage = "auto"
	// SpeechBytesPerSecond is how much space RecognizeSpeech takes in its directory for a second of sound.
	SpeechBytesPerSecond = 2 * speechRate
	speechRate           = 16_000 // which whisper-cli reads without a conversion
	// speechStall multiplies Tools.Stall, because whisper-cli reports nothing while nobody speaks.
	speechStall = 15
)

// Speech is what is spoken in a video.
type Speech struct {
	Language string // a code of ISO 639
	WebVTT   []byte // nil if nothing is spoken
}

// RecognizeSpeech writes down what is spoken in a published sound, in a language (ISO 639) or DetectLanguage, with whisper-cli.
// Open opens a file of the rendition's directory. The empty directory dir is for temporary files.
func (t Tools) RecognizeSpeech(
	ctx context.Context, sound Rendition, open func(name string) (io.ReadCloser, error), spoken, dir string,
) (Speech, error) {
	ctx, cancel := t.withTimeLimit(ctx, sound.Duration)
	defer cancel()
	t = t.withStepCounter()
	in, err := newRenditionReader(sound, open)
	if err != nil {
		return Speech{}, err
	}
	defer in.Close()
	// Sound that begins late has silence before it.
	args := t.ffmpegArgs("-protocol_whitelist", "pipe", "-f", "mov", "-i", "pipe:0", "-map", "0:a", "-ac", "1",
		"-af", fmt.Sprintf("aresample=%d:async=1:first_pts=0", speechRate), "-c:a", "pcm_s16le", "file:speech.wav")
	_, err = t.run(ctx, command{tool: "ffmpeg", purpose: "speech", args: args, dir: dir, stdin: in, noProgress: true})
	if err != nil {
		return Speech{}, err
	}
	t.Stall = speechStall * cmp.Or(t.Stall, defaultStall)
	args = []string{"-l", spoken, "-f", "speech.wav", "-oj", "-of", "speech"}
	if t.Threads > 0 {
		args = append(args, "-t", fmt.Sprint(t.Threads))
	}
	out, err := t.runWhisper(ctx, dir, args...)
	if err != nil {
		return Speech{}, err
	}
	s, err := readSpeech(filepath.Join(dir, "speech.json"))
	if errors.Is(err, fs.ErrNotExist) { // it also ends with 0 after errors
		err = fmt.Errorf("%s wrote nothing for the language %q: %s", whisper, spoken, out.tail)
	}
	return s, err
}

// soundDescription is a text where nothing is spoken, such as [BLANK_AUDIO] or (applause).
var soundDescription = regexp.MustCompile(`^(\[[^]]*]|\([^)]*\)|\*[^*]*\*|[♪♫ ]*)$`)

// readSpeech reads what whisper-cli has written. A text may begin or end within a character.
func readSpeech(file string) (Speech, error) {
	in, err := os.Open(file)
	if err != nil {
		return Speech{}, err
	}
	defer in.Close()
	var found struct {
		Result        struct{ Language string }
		Transcription []struct {
			Offsets struct{ From, To time.Duration } // in milliseconds
			Text    string
		}
	}
	if err := json.NewDecoder(io.LimitReader(in, 4*captions.MaxBytes)).Decode(&found); err != nil {
		return Speech{}, fmt.Errorf("read what %s wrote: %w", whisper, err)
	}
	var cues []captions.Cue
	for _, c := range found.Transcription {
		text := strings.Join(strings.Fields(strings.ReplaceAll(c.Text, "\uFFFD", "")), " ")
		if !soundDescription.MatchString(text) {
			cues = append(cues, captions.Cue{
				Start: c.Offsets.From * time.Millisecond, End: c.Offsets.To * time.Millisecond, Text: html.EscapeString(text),
			})
		}
	}
	if len(cues) == 0 {
		return Speech{}, nil
	}
	return Speech{found.Result.Language, captions.WebVTT(cues)}, nil
}

// CheckWhisper returns an error if whisper-cli does not start, or has no model.
func (t Tools) CheckWhisper(ctx context.Context) error {
	_, err := os.Stat(t.WhisperModel)
	if err == nil {
		_, err = t.runWhisper(ctx, "", "--help")
	}
	return err
}

func (t Tools) runWhisper(ctx context.Context, dir string, args ...string) (stderrReport, error) {
	model, err := filepath.Abs(t.WhisperModel)
	if err != nil {
		return stderrReport{}, err
	}
	args = append([]string{"-m", model}, args...)
	return t.run(ctx, command{tool: whisper, purpose: "speech", args: args, dir: dir, source: model})
}
