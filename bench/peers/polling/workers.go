package polling

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/peers/internal/work"
)

// connections is the size of the pool.
const connections = 20

type crew struct {
	harness.Options
	pool    *pgxpool.Pool
	trouble work.ErrorList
	end     context.CancelFunc // ends the loops
	abort   context.CancelFunc // and what is being worked on
	loops   sync.WaitGroup
	workers sync.WaitGroup // begun by loops only
}

// Start starts a loop for each stage.
func (p System) Start(ctx context.Context, url string, o harness.Options) (harness.Workers, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("start polling: %w", err)
	}
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("start polling: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("start polling: %w", err)
	}
	c := &crew{Options: o, pool: pool}
	working, abort := context.WithCancel(context.WithoutCancel(ctx))
	looping, end := context.WithCancel(working)
	c.end, c.abort = end, abort
	for s := range harness.Stage(harness.StageCount) {
		l := &loop{
			crew: c, stage: s, interval: p.interval, claim: claim(s), complete: complete(s),
			slots: make(chan struct{}, max(1, o.Slots)),
		}
		c.loops.Go(func() { l.run(looping, working) })
	}
	return c, nil
}

// Submit inserts a task.
func (c *crew) Submit(ctx context.Context, task int64) error {
	if _, err := c.pool.Exec(ctx, submit, task); err != nil {
		return fmt.Errorf("insert task: %w", err)
	}
	return nil
}

// SubmitAll inserts many, with one statement.
func (c *crew) SubmitAll(ctx context.Context, first int64, n int) error {
	if _, err := c.pool.Exec(ctx, submitAll, first, n); err != nil {
		return fmt.Errorf("insert tasks: %w", err)
	}
	return nil
}

// Stop waits for what is being worked on, but no longer than ctx lets it.
func (c *crew) Stop(ctx context.Context) error {
	c.end()
	defer context.AfterFunc(ctx, c.abort)()
	c.loops.Wait()
	c.workers.Wait()
	c.abort()
	c.pool.Close()
	return c.trouble.Err()
}

// loop is that of one stage.
type loop struct {
	*crew
	stage           harness.Stage
	interval        time.Duration
	claim, complete string
	slots           chan struct{} // has one for each that is busy
}

// run claims until looping is done; what it has claimed is worked on until
// working is.
func (l *loop) run(looping, working context.Context) {
	sleep := rand.N(l.interval)
	for l.sleep(looping, sleep) {
		sleep = l.interval*3/4 + rand.N(l.interval/2)
		for more := true; more; {
			more = l.round(looping, working)
		}
	}
}

// sleep is false if ctx is done.
func (l *loop) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// round claims as many rows as there are free slots, of which it waits for one.
// There may be more if it got all it asked for.
func (l *loop) round(looping, working context.Context) (more bool) {
	free := l.free(looping)
	if free == 0 {
		return false
	}
	// What was claimed is worked on even if the loop ends meanwhile.
	rows, _ := l.pool.Query(working, l.claim, free) // its error comes with the rows
	claimed, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		l.trouble.Add(fmt.Errorf("claim %v: %w", l.stage, err))
		claimed = nil
	}
	for range free - len(claimed) {
		<-l.slots
	}
	for _, task := range claimed {
		l.workers.Go(func() {
			l.trouble.Add(l.work(working, task))
			<-l.slots
		})
	}
	return len(claimed) == free
}

// free takes all free slots, and waits until there is one. It is 0 if ctx is
// done.
func (l *loop) free(ctx context.Context) (n int) {
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
	if err := work.Work(ctx, l.Options, task, l.stage); err != nil {
		return err
	}
	if _, err := l.pool.Exec(ctx, l.complete, task); err != nil {
		return fmt.Errorf("complete %v: %w", l.stage, err)
	}
	work.Completed(l.Options, task, l.stage)
	return nil
}
