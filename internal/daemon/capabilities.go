package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/cuelight/cuelight/internal/media"
)

// Capabilities are what a worker publishes about its host, for tasks that ask for it.
type Capabilities struct {
	Labels      []string `json:"labels,omitempty"` // given by the operator
	Encoders    []string `json:"encoders"`         // those of ffmpeg that work
	Filters     []string `json:"filters"`          // those of ffmpeg that the pipeline uses if they are there
	MemoryBytes int64    `json:"memory_bytes,omitempty"`
	Whisper     bool     `json:"whisper,omitempty"` // it makes automatic captions
}

// tryTimeout is how long a process waits before it registers without what it has not found out.
const tryTimeout = 15 * time.Second

// tryCapabilities tries the encoders, and logs what it finds. The drivers of hardware may take seconds.
// Afterwards tools.Cache knows what ffmpeg has, and which encoders do not work.
func tryCapabilities(ctx context.Context, tools media.Tools, labels []string, log *zap.Logger) Capabilities {
	within, cancel := context.WithTimeoutCause(ctx, tryTimeout, fmt.Errorf("ffmpeg did not answer within %v", tryTimeout))
	defer cancel()
	c := Capabilities{Labels: labels, MemoryBytes: media.HostMemory()}
	filters, filtersErr := tools.OptionalFilters(within)
	trials, trialsErr := tools.TryEncoders(within)
	if ctx.Err() != nil {
		return c
	}
	c.Encoders, c.Filters = []string{}, append([]string{}, filters...) // not null in JSON
	if err := cmp.Or(filtersErr, trialsErr); err != nil {
		log.Warn("capabilities of ffmpeg unknown", zap.Error(err))
	}
	for _, trial := range trials {
		switch {
		case trial.Failure == "":
			c.Encoders = append(c.Encoders, trial.Name)
		case trial.IsWanted:
			log.Warn("encoder does not work", zap.String("encoder", trial.Name), zap.String("error", trial.Failure),
				zap.String("hint", trial.Hint))
		}
	}
	if err := tools.CheckWhisper(within); err == nil {
		c.Whisper = true
	} else if tools.WhisperModel != "" {
		log.Error("whisper-cli does not work, so this process makes no automatic captions", zap.Error(err),
			zap.String("hint", "correct --whisper and --whisper-cli, or allow its libraries with --media-readable"))
	}
	log.Info("encoders found", zap.Strings("encoders", c.Encoders))
	return c
}

func (c Capabilities) json() json.RawMessage { return workerCapabilities{Capabilities: &c}.json() }

// workerCapabilities is the JSON of workers.capabilities.
type workerCapabilities struct {
	Workspace
	*Capabilities // nil if they were not tried
}

func (w workerCapabilities) json() json.RawMessage {
	raw, err := json.Marshal(w)
	if err != nil {
		panic(err) // it has strings, numbers and a bool
	}
	return raw
}

// trial is a trial of the capabilities that goes on while the process starts.
type trial struct {
	done  chan struct{}
	found Capabilities // set before done is closed
}

func newTrial() *trial { return &trial{done: make(chan struct{})} }

func (t *trial) finish(found Capabilities) {
	t.found = found
	close(t.done)
}

// wait returns the result, or nil if ctx ends before.
func (t *trial) wait(ctx context.Context) *Capabilities {
	select {
	case <-t.done:
		return &t.found
	case <-ctx.Done():
		return nil
	}
}
