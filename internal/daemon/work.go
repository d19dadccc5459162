package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"go.uber.org/zap"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
)

// WorkOptions say what a remote worker does.
type WorkOptions struct {
	Client *remote.Client
	Server string        // the coordinator's address, for the log
	Runner stages.Runner // without Backend, Wakes, Observe and OnAlive
	Log    *zap.Logger
	Env    dbconn.Environment // has the service manager's socket
}

// Work runs `cuelight work` until ctx is done and the work has drained.
func Work(ctx context.Context, o WorkOptions) error {
	manager, events := newSystemd(o.Env), NewEventQueue()
	defer manager.close()
	o.Log.Info("working for a coordinator", zap.String("server", o.Server))
	o.Runner.Backend, o.Runner.Wakes, o.Runner.Observe = o.Client.Backend(), o.Client.Wakes(), events.Observe
	ended := make(chan error, 1)
	var run sync.WaitGroup
	defer run.Wait()
	run.Go(func() { ended <- o.Runner.Run(ctx) })
	manager.notify("READY=1\nSTATUS=waiting for the coordinator")
	stopping := ctx.Done()
	for {
		select {
		case err := <-ended:
			o.logEvents(events, manager)
			switch {
			case errors.Is(err, remote.ErrUntrusted):
				return &usererr.Error{
					Kind: usererr.Usage, Text: usererr.FirstLine(err.Error()),
					Hint: "give the certificate of its authority with --ca-file, or correct --server",
				}
			case errors.Is(err, remote.ErrRefused):
				return &usererr.Error{
					Kind: usererr.Usage, Text: usererr.FirstLine(err.Error()),
					Hint: "check --server; a key is made by cuelight keys create NAME --scope work, on the coordinator's host",
				}
			}
			return err
		case <-events.Wake:
			o.logEvents(events, manager)
		case <-stopping:
			stopping = nil
			s, _ := SignalOf(ctx)
			o.Log.Info("stopping", zap.Stringer("signal", s.Signal), zap.Duration("grace", o.Runner.Grace),
				zap.String("hint", "a second signal stops at once"))
			manager.notify("STOPPING=1\nSTATUS=draining")
		}
	}
}

func (o *WorkOptions) logEvents(events *EventQueue, manager *systemd) {
	for _, e := range events.Take() {
		switch e.Kind {
		case stages.DatabaseUnavailable:
			manager.notify("STATUS=waiting for the coordinator")
			o.Log.Warn("coordinator unavailable", zap.Error(e.Err))
		case stages.DatabaseAvailable:
			manager.notify("STATUS=working")
			o.Log.Info("coordinator available again")
		default:
			logEvent(o.Log, nil, e)
		}
	}
}

// WorkerCapabilities is what a remote worker says about itself.
func WorkerCapabilities(labels, encoders []string) json.RawMessage {
	raw, err := json.Marshal(struct {
		Labels   []string `json:"labels,omitempty"`
		Encoders []string `json:"encoders"`
	}{labels, encoders})
	if err != nil {
		panic(err) // it has strings
	}
	return raw
}
