package scenario_test

import (
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/bench/report"
	"github.com/cuelight/cuelight/bench/scenario"
	"github.com/cuelight/cuelight/bench/system"
	"github.com/cuelight/cuelight/bench/system/cuelight"
	"github.com/cuelight/cuelight/internal/postgres"
)

func TestMain(m *testing.M) {
	system.RunIfChild([]system.System{cuelight.Local})
	goleak.VerifyTestMain(m)
}

// newSession returns a session with a server.
func newSession(t *testing.T) *scenario.Session {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server")
	}
	server, err := scenario.StartServer(t.Context(), "/tmp", 512)
	if errors.Is(err, postgres.ErrNotInstalled) && os.Getenv("CI") == "" {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return &scenario.Session{
		Server: server, Result: report.New("test"), Logf: t.Logf, Dir: t.TempDir(), Slots: 5,
	}
}

func TestSession_MeasuresCuelightInEveryScenario(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	const slow = 2 * time.Millisecond
	var g scenario.Group
	g.Rounds = 2
	for _, sc := range []scenario.Scenario{
		scenario.E2E(3, 0),
		scenario.E2E(3, slow),
		scenario.HopToOtherProcess(3),
		scenario.Rate(scenario.RateOptions{
			Rates: []int{50}, Duration: 300 * time.Millisecond, Warmup: 100 * time.Millisecond,
		}),
		scenario.Drain(50),
		scenario.Processes(2, 50, 3),
		scenario.Utilization(30, 5, 20*time.Millisecond),
		scenario.Overtaking(50, 5),
		scenario.NotificationCount(50),
		scenario.DrainWithFinished(100, 50),
		scenario.Snapshot(scenario.SnapshotOptions{Rate: 100, Before: time.Second, Held: time.Second, After: time.Second, FailEvery: 10}),
		scenario.TriggerCost(200),
	} {
		g.Runs = append(g.Runs, scenario.Run{Scenario: sc, System: cuelight.Local})
	}
	for _, sc := range []scenario.Scenario{
		scenario.Commits(1, 3, 0),
		scenario.Commits(5, 3, 0),
		scenario.Commits(5, 3, slow),
		scenario.Notify(3),
	} {
		g.Runs = append(g.Runs, scenario.Run{Scenario: sc})
	}
	if err := s.Run(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	if len(s.Result.Skipped) > 0 {
		t.Errorf("skipped: %v", s.Result.Skipped)
	}
	var got []string
	for _, f := range s.Result.Figures {
		if len(f.Rounds) != 2 {
			t.Errorf("%s has %d rounds, want 2", f.Key, len(f.Rounds))
		}
		got = append(got, f.Key.String())
	}
	slices.Sort(got)
	want := []string{
		"bulk/cuelight/cancel", "bulk/cuelight/import", "bulk/cuelight/prioritize", "bulk/cuelight/report",
		"bulk/cuelight/reset", "bulk/cuelight/slowest",
		"commit/floor/idle", "commits5/floor/commit_delay=2ms", "commits5/floor/idle",
		"drain/cuelight/tasks=50", "e2e/cuelight/commit_delay=2ms", "e2e/cuelight/idle", "grown/cuelight/finished=100",
		"hop/cuelight",
		"hop_other/cuelight", "notifies/cuelight", "notify/floor/idle",
		"order/cuelight/tasks=50", "processes/cuelight/processes=2",
		"processes_cpu/cuelight/processes=2,drained", "processes_cpu/cuelight/processes=2,one by one",
		"rate/cuelight/rate=50", "rate_kept/cuelight/rate=50",
		"snapshot/cuelight/after,failing=1/10", "snapshot/cuelight/before,failing=1/10", "snapshot/cuelight/held,failing=1/10",
		"snapshot_kept/cuelight/after,failing=1/10", "snapshot_kept/cuelight/before,failing=1/10",
		"snapshot_kept/cuelight/held,failing=1/10",
		"work20ms/cuelight/slots=5",
	}
	if !slices.Equal(got, want) {
		t.Errorf("figures are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	f, _ := s.Result.Find(report.Key{Scenario: "commits5", System: "floor", Case: "commit_delay=2ms"})
	if f.Median() < 10 {
		t.Errorf("five commits with a delay of 2 ms took %v ms", f.Median())
	}
}

func TestStartServer_HasWALSegmentsForTheFirstTrials(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	url, _, err := s.CreateDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const aheadSQL = `
select count(*) from pg_ls_waldir()
 where name > pg_walfile_name(pg_current_wal_lsn()) and name ~ '^[0-9A-F]{24}$'`
	err = system.WithConn(t.Context(), url, func(conn *pgx.Conn) error {
		ahead := 0
		if err := conn.QueryRow(t.Context(), aheadSQL).Scan(&ahead); err != nil {
			return err
		}
		if ahead < 12 {
			t.Errorf("%d segments are ready, want at least 12 of the 16", ahead)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestSession_MeasuresRemoteWorkers(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	var all []scenario.Run
	for _, system := range []system.System{cuelight.Local, cuelight.Remote} {
		for _, measured := range []scenario.Scenario{scenario.Start(3), scenario.RemoteDrain(100)} {
			all = append(all, scenario.Run{Scenario: measured, System: system})
		}
	}
	if err := s.Run(t.Context(), scenario.Group{Rounds: 1, Runs: all}); err != nil {
		t.Fatal(err)
	}
	if len(s.Result.Skipped) > 0 {
		t.Errorf("skipped: %v", s.Result.Skipped)
	}
	for _, key := range []report.Key{
		{Scenario: "start", System: "cuelight", Case: "idle"},
		{Scenario: "start", System: "cuelight_remote", Case: "idle"},
		{Scenario: "http", System: "cuelight_remote", Case: "idle"},
		{Scenario: "remote_drain", System: "cuelight", Case: "tasks=100"},
		{Scenario: "remote_drain", System: "cuelight_remote", Case: "tasks=100"},
	} {
		if f, ok := s.Result.Find(key); !ok || f.Median() <= 0 {
			t.Errorf("%s is %+v", key, f)
		}
	}
	start, _ := s.Result.Find(report.Key{Scenario: "start", System: "cuelight_remote", Case: "idle"})
	trip, _ := s.Result.Find(report.Key{Scenario: "http", System: "cuelight_remote", Case: "idle"})
	beyond, ok := s.Result.Find(report.Key{Scenario: "start_beyond", System: "cuelight_remote", Case: "idle"})
	if !ok || math.Abs(beyond.Median()-start.Median()+2*trip.Median()) > 1e-6 {
		t.Errorf("%v ms beyond two round trips, of %v and %v", beyond.Median(), start.Median(), trip.Median())
	}
	if _, ok := s.Result.Find(report.Key{Scenario: "http", System: "cuelight", Case: "idle"}); ok {
		t.Error("a round trip of workers without HTTP was measured")
	}
}

func TestSession_RecordsFailuresAndContinues(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	var order []string
	starts := func(name string) func() { return func() { order = append(order, name) } }
	drain := scenario.Drain(10)
	err := s.Run(t.Context(), scenario.Group{Rounds: 3, Runs: []scenario.Run{
		{Scenario: drain, System: fakeSystem{name: "good", onStart: starts("good")}.system()},
		{
			Scenario: drain,
			System:   fakeSystem{name: "sloppy", onStart: starts("sloppy"), distort: duplicate(system.Completed)}.system(),
		},
		{Scenario: drain, System: fakeSystem{name: "fine", onStart: starts("fine")}.system()},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"good", "sloppy", "fine", "fine", "good", "fine", "good"}; !slices.Equal(order, want) {
		t.Errorf("order of starts is %v, want %v", order, want)
	}
	for _, name := range []string{"good", "fine"} {
		if f, ok := s.Result.Find(report.Key{Scenario: "drain", System: name, Case: "tasks=10"}); !ok || len(f.Rounds) != 3 {
			t.Errorf("%s has %+v, want three rounds", name, f)
		}
	}
	if got := s.Result.Skipped["drain/sloppy"]; !strings.Contains(got, "error in round 1: metadata of task 3") {
		t.Errorf("reason for sloppy is %q", got)
	}
}

func TestSession_LeavesNothingWhenInterrupted(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	ctx, cancel := context.WithCancel(t.Context())
	endless := fakeSystem{
		name: "endless", duration: time.Second, onStart: func() { time.AfterFunc(50*time.Millisecond, cancel) },
	}
	err := s.Run(ctx, scenario.Group{Rounds: 1, Runs: []scenario.Run{
		{Scenario: scenario.E2E(100, 0), System: endless.system()},
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	var left int
	must(t, s.Query(t.Context(), "select count(*) from pg_database where datname like 'bench%'", &left))
	if left != 0 {
		t.Errorf("%d databases are left", left)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
