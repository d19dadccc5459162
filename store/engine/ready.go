package engine

import (
	"math/rand/v2"
	"time"
)

// ReadyQueue is what a process knows about the ready steps of a queue: whether there may be any, where to claim, and when. The
// zero value knows of none. It is not safe for concurrent use.
type ReadyQueue struct {
	Due      bool     // steps may be ready
	Position Position // where to claim: all ready steps before it are claimed, or were announced since

	notBefore   time.Time // after a short claim: when to claim again
	leftAt      time.Time // when a step is left to this process that others are preferred for; zero for none
	shortClaims int       // in a row: claims that got less than was ready
	wakes       int       // counts what made the queue due
}

// Wake handles notifications of steps, or of any step.
func (q *ReadyQueue) Wake(payloads []string) {
	q.setDue()
	for _, text := range payloads {
		if step, ok := ParseStep(text); ok {
			q.Open(step)
		} else if text != Due {
			q.Position = Position{}
		}
	}
}

func (q *ReadyQueue) setDue() {
	q.Due, q.shortClaims, q.notBefore = true, 0, time.Time{}
	q.wakes++
}

// Open handles a step that may be ready now: the next claim begins before it.
func (q *ReadyQueue) Open(step Position) {
	q.Due = true
	q.wakes++
	if before := step.Before(); before.Compare(q.Position) < 0 {
		q.Position = before
	}
}

// Restart makes the next claim begin at the start.
func (q *ReadyQueue) Restart() {
	q.setDue()
	q.Position = Position{}
}

// RestartIn makes a claim begin at the start after a time as the database gives it: a step is left to this process then, for which
// others are preferred. Negative: there is none.
func (q *ReadyQueue) RestartIn(wait time.Duration) {
	if wait >= 0 {
		q.leftAt = time.Now().Add(max(wait, minWait))
	}
}

// Check handles what is due at now, and reports whether to claim from the queue.
func (q *ReadyQueue) Check(now time.Time) bool {
	if !q.leftAt.IsZero() && !now.Before(q.leftAt) {
		q.Restart()
		q.leftAt = time.Time{}
	}
	return q.Due && !now.Before(q.notBefore)
}

// Next returns when a claim may find something without a notification, if that is before t.
func (q *ReadyQueue) Next(t time.Time) time.Time {
	if !q.leftAt.IsZero() && q.leftAt.Before(t) {
		t = q.leftAt
	}
	if q.Due && q.notBefore.Before(t) {
		t = q.notBefore
	}
	return t
}

// Mark is the state of a ReadyQueue before an exchange.
type Mark int

// Mark returns the state before an exchange, for Update.
func (q *ReadyQueue) Mark() Mark { return Mark(q.wakes) }

// Update records what an exchange has found, and decides whether and when to claim again. What was announced since the mark
// stays ready.
//
// A claim that got fewer steps than it had slots for, although more are ready, met rows that another process had locked, to
// claim sibling stages of the same tasks. No notification will announce them, so the queue is claimed from again, after a
// millisecond or two at first.
//
// A claim goes on where the one before has ended, because one from the start reads all index entries of steps claimed since the
// last vacuum. What becomes ready before is announced, so without notifications claims begin at the start.
func (q *ReadyQueue) Update(queue int, before Mark, r ExchangeRequest, out ExchangeResult) {
	if !r.ClaimFrom[queue] {
		return
	}
	q.leftAt = time.Time{}
	q.RestartIn(out.Wait[queue])
	if before != q.Mark() {
		return
	}
	q.Position, q.Due = out.Next[queue], out.MoreReady[queue]
	if !q.Due || out.Claimed[queue] >= r.FreeSlots[queue] {
		q.shortClaims, q.notBefore = 0, time.Time{}
		return
	}
	if q.shortClaims++; q.shortClaims > maxShortClaims {
		q.Due, q.shortClaims = false, 0
		return
	}
	delay := time.Millisecond << min(q.shortClaims-1, 6)
	q.notBefore = time.Now().Add(delay + time.Duration(rand.Int64N(int64(delay))))
}

// maxShortClaims is how often in a row a queue is claimed from without getting what is ready.
// After that the sweep finds it.
const maxShortClaims = 12

// minWait is the shortest wait for a time that the database has named.
const minWait = 4 * time.Millisecond

// WaitingSteps is when a step that waits for a time is due, of any queue. The zero value knows of none. It is not safe for
// concurrent use.
type WaitingSteps struct {
	Next     time.Time // zero for none
	Due      bool      // it has come: the next exchange should promote. Its caller resets this
	failures int       // how often in a row due steps could not be promoted
}

// Check handles what is due at now, and reports whether a time has come since the last call.
func (s *WaitingSteps) Check(now time.Time) bool {
	if s.Next.IsZero() || now.Before(s.Next) {
		return false
	}
	s.Due, s.Next = true, time.Time{}
	return true
}

// Add adds a time.
func (s *WaitingSteps) Add(at time.Time) {
	if s.Next.IsZero() || at.Before(s.Next) {
		s.Next = at
	}
}

// Update records the next time, which an exchange knows if it claimed. Where steps are due already and could not be promoted,
// it tries again, less and less often.
func (s *WaitingSteps) Update(promoted, claimed bool, next time.Duration) {
	if !claimed {
		return
	}
	s.Next = time.Time{}
	if next != 0 || !promoted {
		s.failures = 0
	} else {
		s.failures = min(s.failures+1, 8)
		next = minWait << s.failures
	}
	if next >= 0 {
		s.Next = time.Now().Add(next)
	}
}
