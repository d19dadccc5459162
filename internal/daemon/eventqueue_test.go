package daemon

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

func TestEventQueue_IsIdleWithoutRunningAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewEventQueue()
		task := store.ID{1}
		isIdle := func() bool {
			select {
			case <-q.Idle(time.Minute):
				return true
			case <-time.After(time.Nanosecond):
				return false
			}
		}
		wait := func(want bool, after string) {
			t.Helper()
			for range 5 { // a sweep is no work
				time.Sleep(15 * time.Second)
				q.Observe(stages.Event{Kind: stages.SweepEnded})
			}
			if isIdle() != want {
				t.Errorf("75 s after %s it is idle: %t", after, !want)
			}
		}
		wait(false, "the start, before the worker was registered,")
		q.Observe(stages.Event{Kind: stages.WorkerStarted})
		if isIdle() || q.Idle(0) != nil {
			t.Error("it is idle at once, or although it is never to be")
		}
		wait(true, "the registration")
		q.Observe(stages.Event{Kind: stages.StageStarted, Task: task, Stage: "one", Attempt: 1})
		q.Observe(stages.Event{Kind: stages.StageStarted, Task: task, Stage: "two", Attempt: 1})
		q.Observe(stages.Event{Kind: stages.StageCompleted, Task: task, Stage: "one", Attempt: 1})
		wait(false, "the second of two attempts started")
		q.Observe(stages.Event{Kind: stages.AttemptFailed, Task: task, Stage: "two", Attempt: 1})
		if isIdle() {
			t.Error("it is idle as soon as an attempt has failed")
		}
		wait(true, "the last attempt ended")
		q.RestartIdle()
		if isIdle() {
			t.Error("it is idle although it was to wait again")
		}
		wait(true, "it was to wait again")
	})
}
