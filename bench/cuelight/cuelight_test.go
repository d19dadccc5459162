package cuelight_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cuelight/cuelight/bench/contest"
	"github.com/cuelight/cuelight/bench/contest/contesttest"
	"github.com/cuelight/cuelight/bench/cuelight"
	"github.com/cuelight/cuelight/internal/pgtest"
)

func TestMain(m *testing.M) { contesttest.Main(m) }

var who cuelight.Contestant

// database is one with the tables.
func database(t *testing.T) string {
	t.Helper()
	url := pgtest.New(t, pgtest.Schema{}).Config().ConnString()
	must(t, who.Setup(t.Context(), url))
	return url
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// diary keeps what happens.
type diary struct {
	mu  sync.Mutex
	all []contest.Moment
}

func (d *diary) observe(m contest.Moment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, m)
}

// until waits for so many completions of a stage.
func (d *diary) until(t *testing.T, s contest.Stage, n int) {
	t.Helper()
	for late := time.Now().Add(30 * time.Second); d.count(s) < n; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("%v was completed %d times, want %d", s, d.count(s), n)
		}
	}
}

func (d *diary) count(s contest.Stage) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.all {
		if m.Stage == s && m.What == contest.Completed {
			n++
		}
	}
	return n
}

func start(t *testing.T, url string, o contest.Options) contest.Crew {
	t.Helper()
	c, err := who.Start(t.Context(), url, o)
	must(t, err)
	t.Cleanup(func() { _ = c.Stop(context.Background()) }) // again, where the test went well
	return c
}

func TestEveryStageOnceAndInOrder(t *testing.T) {
	t.Parallel()
	contesttest.Run(t, who)
}

func TestCrewsShareTheStages(t *testing.T) {
	t.Parallel()
	url := database(t)
	var mine, theirs diary
	c := start(t, url, contest.Options{Slots: 1, Only: []contest.Stage{contest.Ingest, contest.Assemble}, Observe: mine.observe})
	other := start(t, url, contest.Options{
		Slots: 1, Only: []contest.Stage{contest.Transcode, contest.Metadata, contest.Publish}, Observe: theirs.observe,
	})
	must(t, c.Submit(t.Context(), 1))
	theirs.until(t, contest.Publish, 1)
	must(t, errors.Join(c.Stop(t.Context()), other.Stop(t.Context())))
	for s, n := range map[contest.Stage]int{contest.Ingest: 1, contest.Assemble: 1, contest.Publish: 0} {
		if mine.count(s) != n || theirs.count(s) != 1-n {
			t.Errorf("%v was completed %d times here and %d times there", s, mine.count(s), theirs.count(s))
		}
	}
}

func TestWaitingTasksAreThereForTheNextCrew(t *testing.T) {
	t.Parallel()
	url := database(t)
	const n = 25_000
	must(t, who.Fill(t.Context(), url, 100, n))
	var d diary
	c := start(t, url, contest.Options{Slots: 100, Observe: d.observe, Only: []contest.Stage{contest.Ingest}})
	d.until(t, contest.Ingest, n)
	must(t, c.Stop(t.Context()))
	seen := map[int64]bool{}
	for _, m := range d.all {
		seen[m.Task] = true
	}
	if len(seen) != n || !seen[100] || !seen[100+n-1] {
		t.Errorf("%d tasks, want %d from 100", len(seen), n)
	}
}

func TestWorkLastsAsLongAsItShould(t *testing.T) {
	t.Parallel()
	var d diary
	c := start(t, database(t), contest.Options{Slots: 1, Work: 30 * time.Millisecond, Observe: d.observe})
	must(t, c.Submit(t.Context(), 1))
	d.until(t, contest.Publish, 1)
	must(t, c.Stop(t.Context()))
	for _, m := range d.all {
		if m.What == contest.Ended && m.Stage == contest.Publish {
			if whole := m.At.Sub(d.all[0].At); whole < 4*30*time.Millisecond {
				t.Errorf("four stages after one another took %v", whole)
			}
		}
	}
}

func TestItDoesNotStartWithoutItsTables(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t, pgtest.Schema{}).Config().ConnString()
	_, err := who.Start(t.Context(), url, contest.Options{Slots: 1})
	if err == nil || !strings.Contains(err.Error(), "tables are missing") {
		t.Errorf("error is %v", err)
	}
}

func TestTroubleWhileItWorksIsAnError(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	url := pool.Config().ConnString()
	must(t, who.Setup(t.Context(), url))
	var d diary
	c := start(t, url, contest.Options{Slots: 1, Observe: d.observe})
	_, err := pool.Exec(t.Context(), "insert into tasks (source) values ('not a number')")
	must(t, err)
	for dead := false; !dead; time.Sleep(time.Millisecond) {
		must(t, pool.QueryRow(t.Context(), "select ingest_status = 'dead' from tasks").Scan(&dead))
	}
	if err := c.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "dead") {
		t.Errorf("error is %v", err)
	}
}
