package transcodebench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/bench/child"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// transcode is the stage that is measured.
const transcode = "transcode"

// Cuelight takes a source through the real pipeline as far as the transcode
// stage, in a process that has transcoded another one before, as a daemon has for
// all but its first. It tells what that stage took: all programs that it ran, and
// the process around it from the stage's beginning to its end, with the checks of
// the renditions, the engine and the listener. It is an error if its ffmpeg got
// another command than expected.
func RunStage(ctx context.Context, o Job, expected Command) (Cost, error) {
	r, err := newRecorder(o.Dir, false)
	if err != nil {
		return Cost{}, err
	}
	took, err := apart(ctx, job{Stage: &stageJob{Job: o, FFmpeg: r.script, Record: r.record}})
	if err != nil {
		return took, err
	}
	ran, err := r.take()
	if err == nil && !ran.equalsExceptSource(expected) {
		err = fmt.Errorf("%w: %q, not %q", errUnexpectedCommand, ran.anonymous(), expected.anonymous())
	}
	return took, err
}

// do runs the pipeline until the transcode stage has ended for both sources.
func (s *stageJob) do(ctx context.Context) (took Cost, err error) {
	pool, err := pgxpool.New(ctx, s.URL)
	if err != nil {
		return took, err
	}
	defer pool.Close()
	m := &meter{ended: make(chan error, 1)}
	pipeline, err := s.pipeline(m)
	if err != nil {
		return took, err
	}
	ctx, stop := context.WithCancel(ctx)
	tasks := store.New(pool, pipeline.Graph())
	runner := stages.Runner{Pool: pool, Pipeline: pipeline, Observe: m.observe}
	ran := make(chan error, 1)
	go func() { ran <- runner.Run(ctx) }()
	if err = m.follow(ctx, tasks, s.Before, ran); err == nil {
		err = os.Remove(s.Record) // only the next one is compared
	}
	if err == nil {
		err = m.follow(ctx, tasks, s.Source, ran)
	}
	stop()
	return m.took, errors.Join(err, <-ran)
}

// pipeline is the built-in one. Nobody works on the stages beside and after
// the transcode.
func (s *stageJob) pipeline(m *meter) (*stages.Pipeline, error) {
	config := video.Config{
		DataDir: filepath.Join(s.Dir, "data"), PublishDir: filepath.Join(s.Dir, "published"),
		Tools: video.Tools{FFmpeg: s.FFmpeg, Sandbox: "off"}, Reserve: -1,
	}
	for _, dir := range []string{config.DataDir, config.PublishDir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
	}
	all := video.Stages(config)
	for i := range all {
		switch all[i].Name {
		case transcode:
			all[i].Work = m.around(all[i].Work)
		case "ingest":
		default:
			all[i].Workers = -1
		}
	}
	return video.Pipeline(all...)
}

// meter measures the stage's work: what it took last.
type meter struct {
	took  Cost
	ended chan error
}

// follow submits a source, and returns when its transcode has ended.
func (m *meter) follow(ctx context.Context, tasks *store.Store, source string, ran chan error) error {
	if _, err := tasks.Submit(ctx, store.Submission{Source: source}); err != nil {
		return err
	}
	select {
	case err := <-m.ended:
		return err
	case err := <-ran:
		ran <- nil
		return errors.Join(errors.New("the pipeline stopped"), err)
	}
}

func (m *meter) around(work stages.Work) stages.Work {
	return func(ctx context.Context, job *stages.Job) (any, error) {
		before, err := everything()
		if err != nil {
			return nil, err
		}
		began := time.Now()
		result, workErr := work(ctx, job)
		m.took.Wall = time.Since(began)
		after, err := everything()
		m.took.CPU, m.took.Memory = after.CPU-before.CPU, after.Memory
		return result, errors.Join(workErr, err)
	}
}

// everything is this process and those it has started.
func everything() (child.Usage, error) {
	own, err := child.OwnUsage()
	theirs, also := child.ChildrenUsage()
	return child.Usage{CPU: own.CPU + theirs.CPU, Memory: own.Memory + theirs.Memory}, errors.Join(err, also)
}

// observe waits for the end of the stage, or for one that does not do what it
// should.
func (m *meter) observe(e stages.Event) {
	var err error
	switch e.Kind {
	case stages.StageCompleted:
		if e.Stage != transcode {
			return
		}
	case stages.AttemptFailed, stages.StageDead, stages.ClaimReleased, stages.ClaimRevoked, stages.DatabaseLost:
		err = fmt.Errorf("%s: %s: %w", e.Kind, e.Stage, e.Err)
	default:
		return
	}
	select {
	case m.ended <- err:
	default: // the first one is enough
	}
}
