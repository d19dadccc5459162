package stages

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cuelight/cuelight/store"
)

// beat tells the database that this process lives, how far its work is, and
// learns which of its claims are no longer its own. There is one beat for all
// claims. It returns when ctx is done.
func (d *dispatcher) beat(ctx context.Context) {
	var (
		every = d.GoneAfter / 6
		// Whoever has had no answer for this long may already have been given
		// up by the others, whose patience is GoneAfter.
		patience = d.GoneAfter * 2 / 3
		last     = time.Now()
		sent     time.Time
		tick     = time.NewTicker(min(time.Second, every))
	)
	defer tick.Stop()
	for {
		recall := false
		select {
		case <-ctx.Done():
			return
		case <-d.recall:
			recall = true
		case <-tick.C:
		}
		claims, running, moved := d.describe()
		if !recall && !moved && time.Since(sent) < every {
			continue
		}
		began := time.Now()
		sent = began
		err := d.beatOnce(ctx, every, claims, running)
		switch {
		case err == nil:
			last = began
			continue
		case errors.Is(err, store.ErrWorkerUnknown):
			// Given back where nobody has freed them yet.
			d.live.cancelAll(fmt.Errorf("%w: this process was given up", ErrLeaseLost))
			if d.registerWithin(ctx, every) == nil {
				last = began
			}
		case time.Since(last) > patience:
			d.live.cancelAll(fmt.Errorf("%w: no heartbeat for %s", ErrLeaseLost, time.Since(last).Round(time.Second)))
		}
		d.touch.lost()
	}
}

func (d *dispatcher) beatOnce(ctx context.Context, timeout time.Duration, claims []store.Claim, running []store.Running) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	lost, err := d.Store.Beat(ctx, d.workerID(), claims, running)
	if err != nil {
		return err
	}
	gone := make(map[store.ID]bool, len(lost))
	for _, token := range lost {
		gone[token] = true
	}
	for _, a := range d.live.all() {
		if gone[a.claim.Token] {
			a.cancel(fmt.Errorf("%w: %w", ErrLeaseLost, errRevoked))
		}
	}
	return nil
}

func (d *dispatcher) registerWithin(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return d.register(ctx)
}

// describe lists what is being worked on, and whether any of it moved.
func (d *dispatcher) describe() (claims []store.Claim, running []store.Running, moved bool) {
	for _, a := range d.live.all() {
		r, m := a.running()
		claims, running, moved = append(claims, a.claim), append(running, r), moved || m
	}
	return claims, running, moved
}
