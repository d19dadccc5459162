package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/store"
)

const (
	// submitters is how many submissions may be under way at once, and rate how
	// many tasks they make in a second, more or less.
	submitters = 4
	rate       = 28
	// submitWithin is how long one try may take.
	submitWithin = 5 * time.Second
	// longTasks are submitted every minute.
	longTasks = 10
)

// load submits tasks, and remembers what became of that.
type load struct {
	pool  *pgxpool.Pool
	store *store.Store

	mu           sync.Mutex
	rand         *rand.Rand
	drawn        int                 // tasks, with those that were rolled back
	submitted    int                 // tasks, without them
	acknowledged map[string]store.ID // by request id
	repeated     int                 // that it took more than one try
	undone       []string            // request ids that were rolled back
}

func newLoad(ctx context.Context, address string, seed uint64) (*load, error) {
	pool, err := pgxpool.New(ctx, address)
	if err != nil {
		return nil, err
	}
	return &load{
		pool: pool, store: store.New(pool, graph()),
		rand: rand.New(rand.NewPCG(seed, 1)), acknowledged: make(map[string]store.ID),
	}, nil
}

// run submits until until is done, and then repeats what was not acknowledged
// until ctx is done.
func (l *load) run(ctx, until context.Context) {
	var all sync.WaitGroup
	for range submitters {
		all.Go(func() {
			for until.Err() == nil {
				subs, undo := l.next()
				if undo {
					l.undo(ctx, subs)
				} else {
					l.submit(ctx, subs)
				}
				_ = pause(until, time.Duration(len(subs))*submitters*time.Second/rate) // its end ends the loop
			}
		})
	}
	all.Wait()
}

// next draws what to submit, and whether to roll it back.
func (l *load) next() (subs []store.Submission, undo bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 1
	switch chance := l.rand.IntN(100); {
	case chance < 12:
		n, undo = 1+l.rand.IntN(3), true
	case chance < 30:
		n = 2 + l.rand.IntN(9)
	}
	for range n {
		l.drawn++
		sub := store.Submission{RequestID: fmt.Sprintf("task-%06d", l.drawn)}
		if undo {
			sub.RequestID = "undone-" + sub.RequestID
		}
		sub.Source = sub.RequestID
		switch l.rand.IntN(20) {
		case 0:
			sub.Priority = int16(l.rand.IntN(5) - 2)
		case 1:
			sub.NotBefore = time.Now().Add(time.Duration(l.rand.IntN(3000)) * ms)
		}
		subs = append(subs, sub)
	}
	if !undo {
		l.submitted += n
		return subs, false
	}
	for _, sub := range subs {
		l.undone = append(l.undone, sub.RequestID)
	}
	return subs, true
}

// long submits, every minute as long as there is the time, tasks that take longer
// than a worker's lease.
func (l *load) long(ctx context.Context, until time.Time) {
	for n := 0; time.Now().Before(until); n++ {
		var subs []store.Submission
		for i := range longTasks {
			name := fmt.Sprintf("%s-%d-%d", longSource, n+1, i+1)
			subs = append(subs, store.Submission{Source: name, RequestID: name, Priority: 10})
		}
		l.mu.Lock()
		l.submitted += len(subs)
		l.mu.Unlock()
		l.submit(ctx, subs)
		if pause(ctx, time.Minute) != nil {
			return
		}
	}
}

// submit repeats a submission until it is acknowledged. Whether one that was
// not is there all the same, nobody knows; its request id makes it harmless.
func (l *load) submit(ctx context.Context, subs []store.Submission) {
	for try := 0; ctx.Err() == nil; try++ {
		within, cancel := context.WithTimeout(ctx, submitWithin)
		receipts, err := l.store.SubmitAll(within, subs)
		cancel()
		if err != nil {
			_ = pause(ctx, 50*ms) // its end ends the loop
			continue
		}
		l.mu.Lock()
		for i, r := range receipts {
			l.acknowledged[subs[i].RequestID] = r.ID
		}
		l.repeated += min(try, 1)
		l.mu.Unlock()
		return
	}
}

var errChangedMind = errors.New("somebody changed his mind")

// undo submits in a transaction, and rolls that back.
func (l *load) undo(ctx context.Context, subs []store.Submission) {
	within, cancel := context.WithTimeout(ctx, submitWithin)
	defer cancel()
	_ = pgx.BeginFunc(within, l.pool, func(tx pgx.Tx) error {
		_, err := l.store.WithTx(tx).SubmitAll(within, subs)
		return errors.Join(errChangedMind, err)
	}) // there is nothing to acknowledge
}
