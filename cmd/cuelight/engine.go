package main

import (
	"cmp"
	"context"
	"time"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// pipelineStages are the five stages as this program runs them.
func pipelineStages(config video.Config) []stages.Stage {
	all := video.Stages(config)
	for i := range all {
		if all[i].Name == publishStage {
			all[i] = withDir(all[i], config.PublishDir)
		}
	}
	return all
}

// engine works on the pipeline.
type engine struct {
	db       *dbconn.Database
	stages   []stages.Stage
	only     []store.ID // the tasks to work on; nil for all
	mine     identity   // of the directories the stages work in
	grace    time.Duration
	lease    time.Duration // 0 for the Runner's default
	ageAfter time.Duration // 0 for never
	abort    <-chan struct{}
	observe  func(stages.Event)
	listener func(connected bool, err error)
	readers  []*notify.Wakes // others in this process who want the news
	keep     time.Duration   // how long events are kept; 0 for the Runner's default, negative for ever
	pulse    pulse
}

// run works until ctx is done, and then until what runs has ended.
func (e *engine) run(ctx context.Context) error {
	pipeline, err := video.Pipeline(e.stages...)
	if err != nil {
		return err
	}
	listener := notify.New(e.db.Pool, notify.Options{
		Channels: e.channels(pipeline), Also: e.readers, ConnConfig: e.db.NotifyConfig, Keep: e.lease,
		OnChange: e.listener, Alive: func() { e.pulse.beat("listener") },
	})
	runner := stages.Runner{
		Pool: e.db.Pool, Pipeline: pipeline, Wakes: listener,
		OnlyTasks: e.only, Capabilities: e.mine.capabilities(e.only != nil),
		// The Runner's zero is its default, ours is none.
		Grace: cmp.Or(e.grace, -1), Abort: e.abort, Lease: e.lease, AgeAfter: e.ageAfter, Heartbeat: e.pulse.beat,
		Version: programVersion(), Observe: e.observe, KeepEvents: e.keep,
	}
	defer e.pulse.rest()
	return runner.Run(ctx)
}

// channels are those of the work, and where others read events, those, too.
func (e *engine) channels(p *stages.Pipeline) []string {
	if len(e.readers) > 0 {
		return eventChannels(p.Graph())
	}
	return p.Channels()
}
