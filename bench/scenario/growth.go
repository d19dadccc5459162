package scenario

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
)

// GrowthOptions say what is larger than usual, and what is measured then.
type GrowthOptions struct {
	// Kind is what there is Size of: "pending" tasks, of which the first are drained; "processes", which drain together;
	// or a kind of harness.System.Grow.
	Kind string
	Size int

	Tasks    int // to drain
	OneByOne int // tasks that are taken through the idle system before; 0 for none
}

// Growth measures what a task costs when something is large: "growth" is the tasks drained per second,
// "growth_cpu" the processor time of the database per drained task, and "growth_idle" per task in an idle system.
// The case is KIND=SIZE, and growth_KIND selects a kind. The first twentieth of the drain is not measured: statements are prepared in it.
func Growth(o GrowthOptions) Scenario {
	return Scenario{Names: []string{"growth", "growth_cpu", "growth_idle", "growth_" + o.Kind}, Measure: o.measure}
}

func (o GrowthOptions) caseName() string { return fmt.Sprintf("%s=%d", o.Kind, o.Size) }

func (o GrowthOptions) measure(ctx context.Context, t *Trial) (err error) {
	preloaded, processes := o.Tasks, 1
	var grown harness.Grown
	switch {
	case o.Kind == "pending":
		preloaded = max(o.Size, o.Tasks)
	case o.Kind == "processes":
		processes = o.Size
	case t.System.Grow == nil:
		return errNotSupported
	default:
		if grown, err = t.System.Grow(ctx, t.URL, o.Kind, o.Size); err != nil {
			return fmt.Errorf("grow: %w", err)
		}
	}
	if grown.Stop != nil {
		defer func() { err = errors.Join(err, grown.Stop()) }()
	}
	systems := grown.Systems
	if systems == nil {
		systems = []harness.System{t.System}
	}
	if err := t.Checkpoint(ctx); err != nil {
		return err
	}
	if err := o.measureIdle(ctx, t, systems[0], processes); err != nil {
		return err
	}
	if workers := max(processes, len(systems)); workers == 1 { // with several, the tasks wait until all have started
		if err := systems[0].Preload(ctx, t.URL, 0, preloaded); err != nil {
			return fmt.Errorf("submit %d tasks: %w", preloaded, err)
		}
	}
	if err := t.Checkpoint(ctx); err != nil {
		return err
	}
	runtime.GC()
	return o.drain(ctx, t, systems, processes)
}

// measureIdle takes tasks one by one through idle processes.
func (o GrowthOptions) measureIdle(ctx context.Context, t *Trial, system harness.System, processes int) error {
	if o.OneByOne == 0 {
		return nil
	}
	start := t.startOne(system)
	if processes > 1 {
		start = t.startProcesses(processes)
	}
	idle, err := measureOneByOne(ctx, t, start, o.OneByOne)
	if err == nil {
		t.Record("growth_idle", o.caseName(), "ms", perTask(idle.database, o.OneByOne))
	}
	return err
}

// drain starts workers, and records what they do from the first twentieth of the tasks until the last one.
func (o GrowthOptions) drain(ctx context.Context, t *Trial, systems []harness.System, processes int) (err error) {
	begin, end := newMilestone(o.Tasks/20), newMilestone(o.Tasks/len(systems)*len(systems))
	options := harness.Options{Slots: t.Slots, Observe: func(observed harness.Observation) {
		if observed.Kind == harness.Completed && observed.Stage == harness.Publish {
			begin.count()
			end.count()
		}
	}}
	var all []harness.Workers
	if processes > 1 {
		all, err = t.startProcesses(processes)(ctx, options)
	} else {
		for _, system := range systems {
			workers, startErr := system.Start(ctx, t.URL, options)
			if err = startErr; err != nil {
				break
			}
			all = append(all, workers)
		}
	}
	switch {
	case err != nil:
	case len(systems) > 1:
		err = submitShares(ctx, all, o.Tasks/len(systems))
	case processes > 1:
		err = all[0].SubmitAll(ctx, 0, o.Tasks)
	}
	var used [2]processorTime
	for i, m := range []*milestone{begin, end} {
		if err == nil {
			err = m.wait(ctx, o.Tasks)
		}
		if err == nil {
			used[i], err = t.processorTime(ctx)
		}
	}
	t.Stop(ctx, &err, all...)
	if err != nil {
		return err
	}
	tasks := end.after - begin.after
	t.Record("growth", o.caseName(), "tasks/s", result.FromValue(float64(tasks)/end.at.Sub(begin.at).Seconds()))
	t.Record("growth_cpu", o.caseName(), "ms", perTask(used[1].since(used[0]).database, tasks))
	return nil
}

// startProcesses starts processes of the system, and stops them again if one cannot be started.
func (t *Trial) startProcesses(n int) starter {
	return func(ctx context.Context, o harness.Options) (all []harness.Workers, err error) {
		if t.StartSubprocess == nil {
			return nil, errNoSubprocesses
		}
		for range n {
			workers, startErr := t.StartSubprocess(ctx, t.System, t.URL, o)
			if startErr != nil {
				t.Stop(ctx, &startErr, all...)
				return nil, startErr
			}
			all = append(all, workers)
		}
		return all, nil
	}
}

// submitShares submits n tasks to each pipeline.
func submitShares(ctx context.Context, all []harness.Workers, n int) error {
	var submitting errgroup.Group
	for i, workers := range all {
		submitting.Go(func() error { return workers.SubmitAll(ctx, int64(i*n), n) })
	}
	return submitting.Wait()
}

// milestone is the time when so many tasks were completed. The goroutines that observe own the counter together.
type milestone struct {
	after   int
	mu      sync.Mutex
	counted int
	at      time.Time     // set before reached is closed
	reached chan struct{} // closed when counted is after
}

func newMilestone(after int) *milestone {
	return &milestone{after: max(after, 1), reached: make(chan struct{})}
}

func (m *milestone) count() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counted++; m.counted == m.after {
		m.at = time.Now()
		close(m.reached)
	}
}

func (m *milestone) wait(ctx context.Context, tasks int) error {
	limit := 2*stuckTimeout + time.Duration(tasks)*10*time.Millisecond
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("the tasks are stuck"))
	defer cancel()
	select {
	case <-m.reached:
		return nil
	case <-ctx.Done():
		m.mu.Lock()
		defer m.mu.Unlock()
		return fmt.Errorf("%d of %d tasks are completed: %w", m.counted, m.after, context.Cause(ctx))
	}
}
