package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cuelight/cuelight/store"
)

// submitters is how many submissions may be under way at once.
const submitters = 4

// submitWithin is how long one try may take, and lastWithin how long those that
// were under way at the end may be repeated.
const (
	submitWithin = 5 * time.Second
	lastWithin   = 30 * time.Second
)

// load submits at a steady pace, and remembers what was acknowledged.
type load struct {
	store *store.Store
	rate  int

	mu           sync.Mutex
	submitted    int
	repeated     int
	acknowledged map[string]store.ID // by request id
	cut          time.Time           // the primary was gone
	last, first  time.Time           // acknowledgement before that, and after
	back         func(time.Duration) // is told of the first
}

func newLoad(s *store.Store, rate int) *load {
	return &load{store: s, rate: rate, acknowledged: make(map[string]store.ID)}
}

// run submits for d, and then until everything is acknowledged.
func (l *load) run(ctx context.Context, d time.Duration) error {
	until, cancelUntil := context.WithTimeout(ctx, d)
	defer cancelUntil()
	last, cancelLast := context.WithTimeout(ctx, d+lastWithin)
	defer cancelLast()
	var all sync.WaitGroup
	for range submitters {
		all.Go(func() {
			tick := time.NewTicker(submitters * time.Second / time.Duration(l.rate))
			defer tick.Stop()
			for until.Err() == nil {
				l.submit(last, l.next())
				select {
				case <-tick.C:
				case <-until.Done():
				}
			}
		})
	}
	all.Wait()
	return ctx.Err()
}

func (l *load) next() store.Submission {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.submitted++
	request := fmt.Sprintf("request-%06d", l.submitted)
	return store.Submission{Source: request, RequestID: request}
}

// submit repeats one submission until it is acknowledged. Whether one that was
// not is there all the same, nobody knows; its request id makes it harmless.
func (l *load) submit(ctx context.Context, sub store.Submission) {
	for try := 0; ctx.Err() == nil; try++ {
		began := time.Now()
		within, cancel := context.WithTimeout(ctx, submitWithin)
		receipt, err := l.store.Submit(within, sub)
		cancel()
		if err == nil {
			l.acknowledge(sub.RequestID, receipt.ID, began, try)
			return
		}
		_ = pause(ctx, 50*time.Millisecond) // its end ends the loop
	}
}

func (l *load) acknowledge(request string, id store.ID, began time.Time, try int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acknowledged[request] = id
	if try > 0 {
		l.repeated++
	}
	switch {
	case l.cut.IsZero():
		l.last = time.Now()
	case l.first.IsZero() && began.After(l.cut):
		l.first = time.Now()
		l.back(l.first.Sub(l.last))
	}
}

// interrupted notes that the primary is gone. The first acknowledgement of what
// is submitted from now on is told.
func (l *load) interrupted(back func(time.Duration)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.back = time.Now(), back
}

// outage is 0 if there was no acknowledgement before it, or none after.
func (l *load) outage() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last.IsZero() || l.first.IsZero() {
		return 0
	}
	return l.first.Sub(l.last)
}
