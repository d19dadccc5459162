package daemon

import (
	"cmp"
	"context"
	"time"

	"github.com/cuelight/cuelight/internal/attached"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// Engine runs the workers of the video pipeline in this process.
type Engine struct {
	DB         *dbconn.Database
	Stages     []stages.Stage
	OnlyTasks  []store.ID // the tasks to work on; nil for all
	Workspace  Workspace
	Grace      time.Duration // how long attempts may go on after ctx is done
	Lease      time.Duration // 0 for the Runner's default
	AgeAfter   time.Duration // 0 for never
	KeepEvents time.Duration // 0 for the Runner's default, negative for ever
	Retention  *stages.Retention
	MaxPerUser int    // tasks of a user that run at once; 0 for no limit
	Name       string // of the worker; empty for the host's
	Version    string
	Abort      <-chan struct{} // closed to stop at once
	Observe    func(stages.Event)

	found       func(context.Context) *Capabilities // waits for their trial; nil without one
	onListening func(connected bool, err error)
	wakes       []*notify.Wakes // other readers of the listener in this process
	watchdog    watchdog
}

// NewOneShotEngine returns an Engine for a command that works on tasks of its own, which the
// caller adds. It returns an error if a live worker has other directories and would take
// these tasks.
func NewOneShotEngine(ctx context.Context, db *dbconn.Database, config video.Config) (*Engine, error) {
	workspace, err := identifyWorkspace(ctx, config)
	if err == nil {
		err = workspace.checkWorkers(ctx, db.Store, true)
	}
	return &Engine{
		DB: db, Stages: limitRetries(pipelineStages(db, config)), Workspace: workspace,
		KeepEvents: db.Target.EventRetention(),
	}, err
}

// pipelineStages returns the stages of the video pipeline as this program runs them.
func pipelineStages(db *dbconn.Database, config video.Config) []stages.Stage {
	config.Captions = attached.New(db.Store).Contents
	all := video.Stages(config)
	for i := range all {
		if all[i].Name == publishStage {
			all[i] = requestAutomaticCaptions(recordPublishDir(all[i], config.PublishLocation().String()), db.Store)
		}
	}
	return all
}

// Run works until ctx is done, and then until the running attempts have ended.
func (e *Engine) Run(ctx context.Context) error {
	pipeline, err := video.Pipeline(e.Stages...)
	if err != nil {
		return err
	}
	channels := pipeline.Channels()
	if len(e.wakes) > 0 {
		channels = ops.EventChannels(pipeline.Graph())
	}
	capabilities := workerCapabilities{Workspace: e.Workspace}
	capabilities.OnlyOwnTasks = e.OnlyTasks != nil
	if e.found != nil {
		if capabilities.Capabilities = e.found(ctx); ctx.Err() != nil {
			return nil
		}
	}
	listener := notify.New(e.DB.Pool, notify.Options{
		Channels: channels, AlsoWake: e.wakes, ConnConfig: e.DB.NotifyConfig, BeforeConnect: dbconn.RefreshPassword, KeepSession: e.Lease,
		OnChange: e.onListening, OnAlive: func() { e.watchdog.recordIteration("listener") },
	})
	runner := stages.Runner{
		Pool: e.DB.Pool, Pipeline: pipeline, Wakes: listener,
		OnlyTasks: e.OnlyTasks, Capabilities: capabilities.json(),
		// For the Runner, 0 is the default and a negative grace is none.
		Grace: cmp.Or(e.Grace, -1), Abort: e.Abort, Lease: e.Lease, AgeAfter: e.AgeAfter,
		OnAlive: e.watchdog.recordIteration,
		Name:    e.Name, Version: e.Version, Observe: e.Observe, KeepEvents: e.KeepEvents, Retention: e.Retention,
		MaxRunningPerUser: e.MaxPerUser,
	}
	defer e.watchdog.reset()
	return runner.Run(ctx)
}

// slots returns how many attempts of each stage run at once.
func (e *Engine) slots() map[string]int {
	slots := make(map[string]int)
	for _, s := range e.Stages {
		slots[s.Name] = max(s.Slots, 0)
	}
	return slots
}
