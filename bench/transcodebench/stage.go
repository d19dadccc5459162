package transcodebench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/proof/proofkit"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// measuredStage is the stage that is measured.
const measuredStage = "transcode"

// RunStage takes a source through the real pipeline as far as the transcode stage. Its process
// transcodes another source first, as a daemon has before nearly every transcode. It returns
// the cost of that stage: all programs that it ran, and its own process from the start of the
// stage to its end, with the checks of the renditions, the engine and the listener. If ffmpeg
// ran another command than expected, it returns an error.
func RunStage(ctx context.Context, j Job, expected Command) (Cost, error) {
	r, err := newRecorder(j.Dir, false)
	if err != nil {
		return Cost{}, err
	}
	cost, err := runInChild(ctx, childTask{Stage: &stageTask{Job: j, FFmpeg: r.script, Record: r.file}})
	if err != nil {
		return cost, err
	}
	ran, err := r.take()
	if err == nil && !ran.equalsExceptSource(expected) {
		err = fmt.Errorf("%w: %q, not %q", errUnexpectedCommand, ran.withoutSource(), expected.withoutSource())
	}
	return cost, err
}

// run runs the pipeline until the transcode stage has ended for both sources.
func (t *stageTask) run(ctx context.Context) (cost Cost, err error) {
	pool, err := pgxpool.New(ctx, t.URL)
	if err != nil {
		return cost, err
	}
	defer pool.Close()
	m := &meter{ended: make(chan error, 1)}
	pipeline, err := t.pipeline(m)
	if err != nil {
		return cost, err
	}
	tasks := store.New(pool, pipeline.Graph())
	if _, err := tasks.Migrate(ctx); err != nil { // the benchmark's stages do not divide
		return cost, err
	}
	ctx, stop := context.WithCancel(ctx)
	runner := stages.Runner{Pool: pool, Pipeline: pipeline, Observe: m.observe}
	stopped := make(chan error, 1)
	go func() { stopped <- runner.Run(ctx) }()
	if err = m.transcode(ctx, tasks, t.Warmup, stopped); err == nil {
		err = os.Remove(t.Record) // only the next command is compared
	}
	if err == nil {
		err = m.transcode(ctx, tasks, t.Source, stopped)
	}
	stop()
	return m.cost, errors.Join(err, <-stopped)
}

// pipeline returns the built-in pipeline with workers for ingest and transcode only.
func (t *stageTask) pipeline(m *meter) (*stages.Pipeline, error) {
	config := video.Config{
		DataDir: filepath.Join(t.Dir, "data"), PublishDir: filepath.Join(t.Dir, "published"),
		Tools: video.Tools{FFmpeg: t.FFmpeg, Sandbox: "off"}, Reserve: -1,
		ChunkLength: -1, // the same command as without Cuelight
	}
	for _, dir := range []string{config.DataDir, config.PublishDir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
	}
	all := video.Stages(config)
	for i := range all {
		switch all[i].Name {
		case measuredStage:
			all[i].Part = m.measure(all[i].Part)
		case "ingest":
		default:
			all[i].Slots = -1
		}
	}
	return video.Pipeline(all...)
}

// meter measures the work of the stage.
type meter struct {
	cost  Cost // of the last task
	ended chan error
}

// transcode submits a source and returns when its transcode has ended.
func (m *meter) transcode(ctx context.Context, tasks *store.Store, source string, stopped chan error) error {
	if _, err := tasks.Submit(ctx, store.Submission{Source: source}); err != nil {
		return err
	}
	select {
	case err := <-m.ended:
		return err
	case err := <-stopped:
		stopped <- nil
		return errors.Join(errors.New("the pipeline stopped"), err)
	}
}

// measure returns the work with a measurement of its cost.
func (m *meter) measure(work stages.Work) stages.Work {
	return func(ctx context.Context, job *stages.Job) (any, error) {
		before, err := totalUsage()
		if err != nil {
			return nil, err
		}
		started := time.Now()
		result, workErr := work(ctx, job)
		m.cost.Wall = time.Since(started)
		after, err := totalUsage()
		m.cost.CPU, m.cost.Memory = after.CPU-before.CPU, after.Peak
		return result, errors.Join(workErr, err)
	}
}

// totalUsage returns the usage of this process and its ended children.
func totalUsage() (proofkit.Usage, error) {
	own, err := proofkit.UsageOf(os.Getpid())
	children, childrenErr := childrenUsage()
	return proofkit.Usage{CPU: own.CPU + children.CPU, Peak: own.Peak + children.Peak}, errors.Join(err, childrenErr)
}

// observe reports the end of the stage, or the first event that should not happen.
func (m *meter) observe(e stages.Event) {
	var err error
	switch e.Kind {
	case stages.StageCompleted:
		if e.Stage != measuredStage {
			return
		}
	case stages.AttemptFailed, stages.StageDead, stages.ClaimReleased, stages.ClaimRevoked, stages.DatabaseUnavailable:
		err = fmt.Errorf("%s: %s: %w", e.Kind, e.Stage, e.Err)
	default:
		return
	}
	select {
	case m.ended <- err:
	default: // only the first counts
	}
}
