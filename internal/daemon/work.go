package daemon

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/stages/video"
)

// WorkOptions say what a remote worker does.
type WorkOptions struct {
	Client *remote.Client
	Server string        // the coordinator's address, for the log
	Tools  video.Tools   // those of the pipeline
	Labels []string      // that tasks may ask for
	Runner stages.Runner // without Backend, Wakes, Observe, OnAlive and Capabilities
	Log    *zap.Logger
	Reload Reload
	// Contact is what the Client's OnContact calls.
	Contact *ContactLog
	Env     dbconn.Environment // has the service manager's socket
	// UntilIdle ends the work after so long without any, once the coordinator has accepted this worker. Default 0: never.
	UntilIdle time.Duration
}

// Work runs `cuelight work` until ctx is done and the work has drained, or until it is idle.
func Work(ctx context.Context, o WorkOptions) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	manager, events := newSystemd(o.Env), NewEventQueue()
	defer manager.close()
	o.Contact.notifyManager(manager)
	o.Log.Info("working for a coordinator", zap.String("server", o.Server))
	found := tryCapabilities(ctx, o.Tools, o.Labels, o.Log)
	if ctx.Err() != nil {
		return nil
	}
	o.Runner.Capabilities = found.json()
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
			return explainRefusal(err)
		case <-events.Wake:
			o.logEvents(events, manager)
		case <-events.Idle(o.UntilIdle):
			o.Log.Info("stopping because there is no work", zap.Duration("idle", o.UntilIdle))
			stopping, o.UntilIdle = nil, 0
			stop(nil)
		case <-o.Reload.Signal:
			o.Reload.Do()
		case <-stopping:
			stopping = nil
			s, _ := SignalOf(ctx)
			o.Log.Info("stopping", zap.Stringer("signal", s.Signal), zap.Duration("grace", o.Runner.Grace),
				zap.String("hint", "a second signal stops at once"))
			manager.notify("STOPPING=1\nSTATUS=draining")
		}
	}
}

// checkTimeout is how long CheckCoordinator waits for an answer.
const checkTimeout = 5 * time.Second

// CheckCoordinator returns an error if the coordinator answers that it will never accept this worker, or
// is none. One that does not answer is waited for later.
func CheckCoordinator(ctx context.Context, client *remote.Client) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := client.Backend().Check(ctx); stages.IsPermanent(err) {
		return explainRefusal(err)
	}
	return nil
}

// explainRefusal says what to do about an error of a coordinator that will not go away.
func explainRefusal(err error) error {
	if !errors.Is(err, remote.ErrRefused) {
		return err
	}
	hint := "change the flags of this worker accordingly"
	switch {
	case errors.Is(err, remote.ErrUntrusted):
		hint = "give the certificate of its authority with --ca-file, or correct --server"
	case errors.Is(err, remote.ErrNoCoordinator):
		hint = "correct --server: it is the address of a cuelight serve --listen, with http or https as that serves"
	case errors.Is(err, remote.ErrKey):
		hint = "on the coordinator's host, cuelight keys list shows all keys and their states, and\n" +
			"cuelight keys create NAME --scope work makes one for --key-file"
	case errors.Is(err, remote.ErrVersion):
		hint = "update the older of the two"
	}
	text := strings.TrimPrefix(usererr.FirstLine(err.Error()), "run pipeline: ")
	return &usererr.Error{Kind: usererr.Usage, Text: text, Hint: hint}
}

func (o *WorkOptions) logEvents(events *EventQueue, manager *systemd) {
	for _, e := range events.Take() {
		switch e.Kind {
		case stages.DatabaseUnavailable, stages.DatabaseAvailable:
			// Contact knows more: the Runner of an idle worker makes no exchanges that could fail.
			continue
		case stages.WorkerStarted:
			manager.notify("STATUS=working")
		}
		log := o.Log
		if e.Kind == stages.StageCompleted || e.Kind == stages.PartCompleted {
			// The duration has the transfers. The coordinator checks the files afterwards.
			log = log.With(zap.Int64("check_ms", e.Reporting.Milliseconds()))
		}
		logEvent(log, nil, e)
	}
}
