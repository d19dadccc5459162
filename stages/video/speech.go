package video

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"

	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// speechPrefix is that of working directories of RecognizeSpeech, which are never finished.
const speechPrefix = "speech"

// RecognizeSpeech writes down what is spoken in a published video, in a language or media.DetectLanguage, with Tools.Whisper. It
// reads the published sound, which has the times of the video and stays longer than the source. Results reads the result of a stage.
func (c Config) RecognizeSpeech(
	ctx context.Context, task store.ID, spoken string, results func(ctx context.Context, stage string) (json.RawMessage, error),
) (media.Speech, error) {
	job := &stages.Job{Task: task, Results: results}
	tr, err1 := stages.Result[Transcode](ctx, job, transcodeStage)
	p, err2 := stages.Result[Publish](ctx, job, publishStage)
	if err := errors.Join(err1, err2); err != nil || tr.Output == nil || len(tr.Output.Audio) == 0 {
		return media.Speech{}, err
	}
	w, err := newWorkdirIn(ctx, job, c.makeTaskDir, speechPrefix, 1, privateMode)
	if err != nil {
		return media.Speech{}, err
	}
	defer os.Remove(w.parent) // if it is empty
	defer w.discard()
	sound := tr.Output.Audio[0] // the default one
	if err := diskspace.Check(w.path, int64(sound.Duration*media.SpeechBytesPerSecond), c.reserve()); err != nil {
		return media.Speech{}, err
	}
	open := func(name string) (io.ReadCloser, error) {
		name = path.Join(p.Generation, path.Dir(sound.Playlist), name)
		if c.PublishBucket == nil {
			return os.Open(c.PublishLocation().path(name))
		}
		f, _, _, err := c.PublishBucket.Open(ctx, name)
		return f, err
	}
	return c.tools(w.withTouch(job), -1, "recognizing speech").RecognizeSpeech(ctx, sound, open, spoken, w.path)
}
