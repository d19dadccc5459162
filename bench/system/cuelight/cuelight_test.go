package cuelight_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/bench/system"
	"github.com/cuelight/cuelight/bench/system/cuelight"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newDatabase returns the address of a database with the tables.
func newDatabase(t *testing.T) string {
	t.Helper()
	url := pgtest.New(t, pgtest.Schema{}).Config().ConnString()
	must(t, cuelight.Local.SetUp(t.Context(), url))
	return url
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// recorder keeps all observations.
type recorder struct {
	mu  sync.Mutex
	all []system.Observation
}

func (d *recorder) observe(m system.Observation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, m)
}

// waitFor waits until a stage has been completed n times.
func (d *recorder) waitFor(t *testing.T, s system.Stage, n int) {
	t.Helper()
	waittest.Until(t, fmt.Sprintf("%v was completed %d times", s, n), func() bool { return d.count(s) >= n })
}

func (d *recorder) count(s system.Stage) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.all {
		if m.Stage == s && m.Kind == system.Completed {
			n++
		}
	}
	return n
}

func start(t *testing.T, url string, o system.Options) system.Workers {
	t.Helper()
	c, err := cuelight.Local.Start(t.Context(), url, o)
	must(t, err)
	t.Cleanup(func() { _ = c.Stop(context.Background()) }) // a second Stop returns at once
	return c
}

func TestWorkers_ShareTheStages(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	var here, there recorder
	c := start(t, url, system.Options{
		Slots: 1, Stages: []system.Stage{system.Ingest, system.Assemble}, Observe: here.observe,
	})
	other := start(t, url, system.Options{
		Slots: 1, Stages: []system.Stage{system.Transcode, system.Metadata, system.Publish}, Observe: there.observe,
	})
	must(t, c.Submit(t.Context(), 1))
	there.waitFor(t, system.Publish, 1)
	must(t, errors.Join(c.Stop(t.Context()), other.Stop(t.Context())))
	for s, n := range map[system.Stage]int{system.Ingest: 1, system.Assemble: 1, system.Publish: 0} {
		if here.count(s) != n || there.count(s) != 1-n {
			t.Errorf("%v was completed %d times here and %d times there", s, here.count(s), there.count(s))
		}
	}
}

func TestPreload_SubmitsTasksForLaterWorkers(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	const n = 25_000
	must(t, cuelight.Local.Preload(t.Context(), url, 100, n))
	var d recorder
	c := start(t, url, system.Options{Slots: 100, Observe: d.observe, Stages: []system.Stage{system.Ingest}})
	d.waitFor(t, system.Ingest, n)
	must(t, c.Stop(t.Context()))
	seen := map[int64]bool{}
	for _, m := range d.all {
		seen[m.Task] = true
	}
	if len(seen) != n || !seen[100] || !seen[100+n-1] {
		t.Errorf("%d tasks, want %d numbered from 100", len(seen), n)
	}
}

func TestWorkers_WorkForTheConfiguredTime(t *testing.T) {
	t.Parallel()
	var d recorder
	c := start(t, newDatabase(t), system.Options{Slots: 1, WorkTime: 30 * time.Millisecond, Observe: d.observe})
	must(t, c.Submit(t.Context(), 1))
	d.waitFor(t, system.Publish, 1)
	must(t, c.Stop(t.Context()))
	for _, m := range d.all {
		if m.Kind == system.Ended && m.Stage == system.Publish {
			if whole := m.At.Sub(d.all[0].At); whole < 4*30*time.Millisecond {
				t.Errorf("four stages in sequence took %v", whole)
			}
		}
	}
}

func TestStart_FailsWithoutTables(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t, pgtest.Schema{}).Config().ConnString()
	_, err := cuelight.Local.Start(t.Context(), url, system.Options{Slots: 1, Observe: func(system.Observation) {}})
	if err == nil || !strings.Contains(err.Error(), "tables are missing") {
		t.Errorf("error is %v", err)
	}
}

func TestStop_ReturnsErrorsOfTheRun(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	url := pool.Config().ConnString()
	must(t, cuelight.Local.SetUp(t.Context(), url))
	var d recorder
	c := start(t, url, system.Options{Slots: 1, Observe: d.observe})
	_, err := pool.Exec(t.Context(), "insert into tasks (source) values ('not a number')")
	must(t, err)
	waittest.Until(t, "the task is dead", func() (isDead bool) {
		must(t, pool.QueryRow(t.Context(), "select ingest_status = 'dead' from tasks").Scan(&isDead))
		return isDead
	})
	if err := c.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "dead") {
		t.Errorf("error is %v", err)
	}
}
