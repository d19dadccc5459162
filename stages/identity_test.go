package stages_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// A worker that starts again on a host expires its predecessor, whose work it gets at once.
func TestRunner_ExpiresItsDeadPredecessorsAtStart(t *testing.T) {
	var self store.Worker
	probe := &fakeBackend{register: func(w store.Worker) { self = w }}
	synctest.Test(t, func(t *testing.T) {
		_, stop := runFake(t, probe, pipeline(t, noop, "one"), nil)
		stop()
	})
	if self.ProcessIdentity == "//" {
		t.Skip("this system does not identify processes")
	}
	boot, namespace, start := self.ProcessIdentity, "", ""
	if parts := strings.Split(self.ProcessIdentity, "/"); len(parts) == 3 {
		boot, namespace, start = parts[0], parts[1], parts[2]
	}
	other := func(id byte, pid int, host, identity string) store.Worker {
		w := self
		w.ID, w.PID, w.Host, w.ProcessIdentity = store.ID{id}, pid, host, identity
		return w
	}
	const unusedPID = 1<<22 + 1 // above any system's limit
	identity := strings.Join([]string{boot, namespace, start}, "/")
	dead := other(2, unusedPID, self.Host, identity)
	reused := other(3, os.Getpid(), self.Host, boot+"/"+namespace+"/"+start+"1")
	alive := other(4, os.Getpid(), self.Host, identity)
	otherHost := other(5, unusedPID, "other-host", identity)
	otherBoot := other(6, unusedPID, self.Host, "x/"+namespace+"/"+start)
	otherNamespace := other(7, unusedPID, self.Host, boot+"/x/"+start)
	unidentified := other(8, unusedPID, self.Host, "")
	want := []store.ID{dead.ID}
	if start != "" {
		want = append(want, reused.ID)
	}
	f := &fakeBackend{workers: []store.Worker{dead, reused, alive, otherHost, otherBoot, otherNamespace, unidentified}}
	var lost []store.ID
	synctest.Test(t, func(t *testing.T) {
		_, stop := runFake(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) {
			r.Observe = func(e stages.Event) {
				if e.Kind == stages.WorkerLost && e.Predecessor {
					lost = append(lost, e.LostWorker)
				}
			}
		})
		time.Sleep(time.Minute)
		stop()
	})
	if !slices.Equal(lost, want) {
		t.Errorf("predecessors are %v, want %v", lost, want)
	}
	if !slices.Equal(f.expiredWorkers, want) {
		t.Errorf("expired workers are %v, want the dead one, and the one whose pid was reused: %v", f.expiredWorkers, want)
	}
	if f.workerQueries != 1 {
		t.Errorf("the Runner queried the workers %d times, want once", f.workerQueries)
	}
}

func TestRunner_RegistersWithItsName(t *testing.T) {
	var registered store.Worker
	f := &fakeBackend{register: func(w store.Worker) { registered = w }}
	synctest.Test(t, func(t *testing.T) {
		_, stop := runFake(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) { r.Name = "north 1" })
		time.Sleep(time.Second)
		stop()
	})
	if registered.Name != "north 1" || registered.Host == "" {
		t.Errorf("registered as %+v", registered)
	}
	err := stages.Runner{Pipeline: pipeline(t, noop, "one"), Backend: f, Name: "a\nb"}.Run(t.Context())
	if !errors.Is(err, store.ErrInvalidWorker) {
		t.Errorf("a name with a line break: %v", err)
	}
}
