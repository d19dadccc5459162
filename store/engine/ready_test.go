package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// claimed is an exchange that claims from the only queue, and its result.
func claimed(slots, got int, more bool) (engine.ExchangeRequest, engine.ExchangeResult) {
	r := engine.ExchangeRequest{FreeSlots: []int{slots}, ClaimFrom: []bool{true}}
	out := engine.ExchangeResult{
		Claimed: []int{got}, MoreReady: []bool{more}, Next: []engine.Position{at(9)}, Wait: []time.Duration{-1}, NextDue: -1,
	}
	return r, out
}

func at(n byte) engine.Position { return engine.Position{Turn: int64(n), Task: store.ID{15: n}} }

func TestReadyQueue_ClaimsAgainWhatOthersHadLocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q engine.ReadyQueue
		q.Restart()
		var waits []time.Duration
		for {
			r, out := claimed(4, 0, true)
			if q.Update(0, q.Mark(), r, out); !q.Due {
				break
			}
			wait := time.Until(q.Next(time.Now().Add(time.Hour)))
			if waits = append(waits, wait); q.Check(time.Now()) {
				t.Fatalf("try %d: it claims again at once", len(waits))
			}
			time.Sleep(wait)
		}
		if n := len(waits); n < 5 || waits[0] < time.Millisecond || waits[0] > 2*time.Millisecond || waits[n-1] < 32*time.Millisecond ||
			waits[n-1] > time.Second {
			t.Errorf("it gave up after waiting %v", waits)
		}
		if q.Wake([]string{engine.Due}); !q.Check(time.Now()) {
			t.Error("a notification does not make it claim")
		}
	})
}

func TestReadyQueue_GoesOnWhereTheClaimBeforeHasEnded(t *testing.T) {
	t.Parallel()
	var q engine.ReadyQueue
	r, out := claimed(4, 4, true)
	q.Update(0, q.Mark(), r, out)
	if !q.Check(time.Now()) || q.Position != at(9) {
		t.Errorf("the queue is %+v; want it due after its last claim", q)
	}
	if q.Open(at(20)); q.Position != at(9) {
		t.Errorf("a later step moved the position to %+v", q.Position)
	}
	if q.Open(at(3)); q.Position.Compare(at(3)) >= 0 || q.Position.IsStart() {
		t.Errorf("a step at 3 moved the position to %+v", q.Position)
	}
	if q.Wake([]string{"anything"}); !q.Position.IsStart() {
		t.Errorf("a notification of any step left the position at %+v", q.Position)
	}
}

func TestReadyQueue_KeepsWhatWasAnnouncedDuringAnExchange(t *testing.T) {
	t.Parallel()
	var q engine.ReadyQueue
	before := q.Mark()
	r, out := claimed(4, 0, false)
	q.Wake([]string{"anything"})
	q.Update(0, before, r, out)
	if !q.Check(time.Now()) || !q.Position.IsStart() {
		t.Errorf("the queue is %+v; want it due from its start", q)
	}
	if q.Update(0, q.Mark(), r, out); q.Check(time.Now()) {
		t.Error("it claims again, although nothing is ready")
	}
}

func TestReadyQueue_ClaimsWhatIsLeftToItWhenItsTimeHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q engine.ReadyQueue
		r, out := claimed(4, 0, false)
		out.Wait[0] = time.Second
		q.Update(0, q.Mark(), r, out)
		next := q.Next(time.Now().Add(time.Hour))
		if q.Check(time.Now()) || time.Until(next) != time.Second {
			t.Fatalf("it claims in %v", time.Until(next))
		}
		time.Sleep(time.Second)
		if !q.Check(time.Now()) || !q.Position.IsStart() {
			t.Errorf("the queue is %+v; want it due from its start", q)
		}
	})
}

func TestWaitingSteps_AreTriedLessAndLessOftenWhileTheyAreLocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s engine.WaitingSteps
		s.Add(time.Now().Add(time.Minute))
		s.Add(time.Now().Add(time.Second))
		if time.Sleep(time.Second); !s.Check(time.Now()) || !s.Due || s.Check(time.Now()) {
			t.Fatalf("after its time: %+v", s)
		}
		last := time.Duration(0)
		for range 4 {
			s.Due = false
			s.Update(true, true, 0)
			wait := time.Until(s.Next)
			if wait <= last || wait > 10*time.Second {
				t.Fatalf("after a failure: %+v, in %v after %v", s, wait, last)
			}
			time.Sleep(wait)
			if last = wait; !s.Check(time.Now()) {
				t.Fatal("it is not tried again")
			}
		}
		if s.Update(true, true, -1); !s.Next.IsZero() {
			t.Errorf("when nothing waits: %+v", s)
		}
	})
}

func TestWaitingSteps_AreNotForgottenByExchangesThatKnowLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s engine.WaitingSteps
		s.Add(time.Now().Add(time.Second))
		if s.Update(true, false, -1); time.Until(s.Next) != time.Second {
			t.Errorf("an exchange that claimed nothing knows no time, but changed it to %v", s.Next)
		}
		time.Sleep(time.Second)
		s.Check(time.Now())
		if s.Update(true, true, time.Minute); !s.Due || time.Until(s.Next) != time.Minute {
			t.Errorf("steps became due during an exchange, and were forgotten: %+v", s)
		}
	})
}
