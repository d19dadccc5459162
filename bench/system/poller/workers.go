package poller

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/bench/system"
)

const connections = 20

type workers struct {
	system.Options
	pool      *pgxpool.Pool
	errs      system.ErrorList
	stopLoops context.CancelFunc
	abortWork context.CancelFunc
	loops     sync.WaitGroup
	attempts  sync.WaitGroup // only loops start attempts
}

// Start starts a loop for each stage.
func (e Every) Start(ctx context.Context, url string, o system.Options) (system.Workers, error) {
	pool, err := system.OpenPool(ctx, url, connections)
	if err != nil {
		return nil, fmt.Errorf("start polling: %w", err)
	}
	w := &workers{Options: o, pool: pool}
	workCtx, abort := context.WithCancel(context.WithoutCancel(ctx))
	loopCtx, stop := context.WithCancel(workCtx)
	w.stopLoops, w.abortWork = stop, abort
	for _, stage := range system.Stages {
		l := &loop{
			workers: w, stage: stage, interval: time.Duration(e), claimSQL: claimSQL(stage), completeSQL: completeSQL(stage),
			slots: make(chan struct{}, max(1, o.Slots)),
		}
		w.loops.Go(func() { l.run(loopCtx, workCtx) })
	}
	return w, nil
}

// Submit inserts a task.
func (w *workers) Submit(ctx context.Context, task int64) error {
	if _, err := w.pool.Exec(ctx, submitSQL, task); err != nil {
		return fmt.Errorf("submit task: %w", err)
	}
	return nil
}

// SubmitAll inserts tasks with one statement.
func (w *workers) SubmitAll(ctx context.Context, first int64, n int) error {
	if _, err := w.pool.Exec(ctx, submitAllSQL, first, n); err != nil {
		return fmt.Errorf("submit tasks: %w", err)
	}
	return nil
}

// Stop waits for running work and cancels it when ctx is done.
func (w *workers) Stop(ctx context.Context) error {
	w.stopLoops()
	defer context.AfterFunc(ctx, w.abortWork)()
	w.loops.Wait()
	w.attempts.Wait()
	w.abortWork()
	w.pool.Close()
	return w.errs.Err()
}

// loop works on one stage.
type loop struct {
	*workers
	stage                 system.Stage
	interval              time.Duration
	claimSQL, completeSQL string
	slots                 chan struct{} // one value for each busy slot
}

// run claims until loopCtx is done. Claimed rows are worked on until workCtx is done.
func (l *loop) run(loopCtx, workCtx context.Context) {
	timer := time.NewTimer(rand.N(l.interval))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-loopCtx.Done():
			return
		}
		for more := true; more; {
			more = l.claimAndStart(loopCtx, workCtx)
		}
		timer.Reset(l.interval*3/4 + rand.N(l.interval/2))
	}
}

// claimAndStart claims a row for each free slot and starts the work. It first waits until a
// slot is free. It reports whether there may be more rows: every slot got one.
func (l *loop) claimAndStart(loopCtx, workCtx context.Context) (more bool) {
	free := l.takeFreeSlots(loopCtx)
	if free == 0 {
		return false
	}
	rows, _ := l.pool.Query(workCtx, l.claimSQL, free) // CollectRows returns the error
	claimed, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		l.errs.Add(fmt.Errorf("claim %v: %w", l.stage, err))
		claimed = nil
	}
	for range free - len(claimed) {
		<-l.slots
	}
	for _, task := range claimed {
		l.attempts.Go(func() {
			l.errs.Add(l.work(workCtx, task))
			<-l.slots
		})
	}
	return len(claimed) == free
}

// takeFreeSlots takes all free slots, at least one. It returns 0 if ctx is done.
func (l *loop) takeFreeSlots(ctx context.Context) (n int) {
	if ctx.Err() != nil {
		return 0
	}
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	for n = 1; ; n++ {
		select {
		case l.slots <- struct{}{}:
		default:
			return n
		}
	}
}

func (l *loop) work(ctx context.Context, task int64) error {
	if err := l.DoWork(ctx, task, l.stage, 0); err != nil {
		return err
	}
	if _, err := l.pool.Exec(ctx, l.completeSQL, task); err != nil {
		return fmt.Errorf("complete %v: %w", l.stage, err)
	}
	l.ReportCompleted(task, l.stage)
	return nil
}
