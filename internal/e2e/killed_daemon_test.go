package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/waittest"
)

// ffmpegGate is an ffmpeg script that waits before a transcode until the gate is opened. It
// writes the waiting processes to a file.
type ffmpegGate struct {
	t   testing.TB
	dir string
}

func (h environment) newGate() (ffmpegGate, string) {
	h.t.Helper()
	real, err := exec.LookPath("ffmpeg")
	if err != nil {
		h.t.Fatal(err)
	}
	g := ffmpegGate{h.t, filepath.Dir(h.data)}
	script := fmt.Sprintf(`#!/bin/sh
case $* in *-stats_period*)
	echo $$ >>'%s/reached'
	while [ ! -e '%s/open' ]; do sleep 0.05; done
esac
exec '%s' "$@"
`, g.dir, g.dir, real)
	if err := os.WriteFile(filepath.Join(g.dir, "ffmpeg"), []byte(script), 0o755); err != nil {
		h.t.Fatal(err)
	}
	return g, "CUELIGHT_FFMPEG=" + filepath.Join(g.dir, "ffmpeg")
}

func (g ffmpegGate) open() {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, "open"), nil, 0o644); err != nil {
		g.t.Fatal(err)
	}
}

// shut makes the transcodes that begin from now on wait.
func (g ffmpegGate) shut() {
	g.t.Helper()
	if err := os.Remove(filepath.Join(g.dir, "open")); err != nil {
		g.t.Fatal(err)
	}
}

// waiting returns the waiting processes that are alive.
func (g ffmpegGate) waiting() (pids []int) {
	text, err := os.ReadFile(filepath.Join(g.dir, "reached"))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		var pid int
		if _, err := fmt.Sscan(line, &pid); err == nil && syscall.Kill(pid, 0) == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// awaitWaiting waits until n processes are waiting.
func (g ffmpegGate) awaitWaiting(n int) {
	g.t.Helper()
	waittest.Equal(g.t, "the number of processes at the gate", n, func() int { return len(g.waiting()) })
}

func (h environment) newGateWithTask(pool *pgxpool.Pool) (ffmpegGate, string) {
	h.t.Helper()
	g, env := h.newGate()
	file := makeClip(h.t, h.t.TempDir(), time.Second, "64x48")
	if _, err := pool.Exec(h.t.Context(), `insert into tasks (source) values ($1)`, file); err != nil {
		h.t.Fatal(err)
	}
	return g, env
}

func (d *daemon) kill() {
	d.t.Helper()
	if err := d.cmd.Process.Kill(); err != nil {
		d.t.Fatal(err)
	}
	<-d.ended
	d.cmd = nil
}

// The daemons have the default lease and grace.
func TestKilledDaemon_AnotherTakesOverWithinTenSeconds(t *testing.T) {
	t.Parallel()
	h := newEnvironment(t)
	pool := h.newDatabase()
	g, env := h.newGateWithTask(pool)
	first := h.serveWith([]string{env, "CUELIGHT_SANDBOX=off"}, pool)
	g.awaitWaiting(1)
	other := h.serveWith([]string{env, "CUELIGHT_SANDBOX=off"}, pool)
	awaitCount(t, pool, 2, `select count(*) from workers where session is not null`)
	// A worker that has just started expires no others.
	awaitCount(t, pool, 1,
		`select count(*) from workers
		 where started_at < now() - interval '9 s' and started_at > (select min(started_at) from workers)`)
	killed := time.Now()
	first.kill()
	awaitCount(t, pool, 1,
		`select count(*) from attempts where outcome = 'expired' and stage = 'transcode'`)
	g.awaitWaiting(1) // of the other daemon: the first one's has died
	// The guarantee is about the claim, not about the start of ffmpeg on a busy machine.
	var claimed time.Time
	if err := pool.QueryRow(t.Context(), `select locked_at from steps where part > 0`).Scan(&claimed); err != nil {
		t.Fatal(err)
	}
	if took := claimed.Sub(killed); took < 0 || took > 10*time.Second {
		t.Errorf("the other daemon claimed the work after %s", took)
	}
	g.open()
	awaitCount(t, pool, 1, `select count(*) from tasks where publish_status = 'completed'`)
	if n := count(t, pool, `select attempts from steps where part > 0`); n != 2 {
		t.Errorf("%d attempts were counted, want 2", n)
	}
	other.stop()
}

func TestKilledDaemon_RestartResumesItsWorkAtOnce(t *testing.T) {
	t.Parallel()
	h := newEnvironment(t)
	pool := h.newDatabase()
	g, env := h.newGateWithTask(pool)
	h.serveWith([]string{env, "CUELIGHT_SANDBOX=off"}, pool).killAtGate(g)
	restarted := h.serveWith([]string{env, "CUELIGHT_SANDBOX=off"}, pool)
	awaitCount(t, pool, 1,
		`select count(*) from attempts where outcome = 'expired' and stage = 'transcode'`)
	g.awaitWaiting(1)
	// The guarantee is about the claim, not about the start of processes on a busy machine.
	var took float64
	if err := pool.QueryRow(t.Context(), `select extract(epoch from s.locked_at - w.started_at)::float8
		from steps s join workers w on w.id = s.locked_by where s.part > 0`).Scan(&took); err != nil {
		t.Fatal(err)
	}
	if took < 0 || took > 4 {
		t.Errorf("the restarted daemon resumed the work %.1f s after it had registered", took)
	}
	g.open()
	awaitCount(t, pool, 1, `select count(*) from tasks where publish_status = 'completed'`)
	restarted.stop()
}

// killAtGate kills the daemon once its transcode waits.
func (d *daemon) killAtGate(g ffmpegGate) {
	d.t.Helper()
	g.awaitWaiting(1)
	d.kill()
	g.awaitWaiting(0)
}

// A process that is frozen for longer than its lease loses its work to others: it changes
// nothing, kills its ffmpeg, and logs this once.
func TestFrozenDaemon_ChangesNothingAfterItsLease(t *testing.T) {
	t.Parallel()
	h := newEnvironment(t)
	pool := h.newDatabase()
	g, env := h.newGateWithTask(pool)
	frozen := h.serveWith([]string{env, "CUELIGHT_SANDBOX=off"}, pool, "--lease", "5s")
	g.awaitWaiting(1)
	revoked := g.waiting()
	if err := frozen.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	other := h.serveWith([]string{env, "CUELIGHT_SANDBOX=off"}, pool, "--lease", "5s")
	g.awaitWaiting(2)
	if err := frozen.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	g.awaitWaiting(1)
	for _, pid := range revoked {
		if syscall.Kill(pid, 0) == nil {
			t.Error("the revoked attempt still runs")
		}
	}
	awaitCount(t, pool, 2, `select count(*) from workers where lost_at is null`) // the frozen one registered again
	g.open()
	awaitCount(t, pool, 1, `select count(*) from tasks where publish_status = 'completed'`)
	frozen.stop()
	other.stop()
	revocations := 0
	for _, l := range frozen.logged("info") {
		if l["stage"] == "transcode" && (l["msg"] == "claim revoked" || l["msg"] == "claim released") {
			revocations++
		}
	}
	if revocations != 1 {
		t.Errorf("the daemon logged %d times that its claim was revoked, want once: %v", revocations, frozen.logged("info"))
	}
	if n := count(t, pool, `select count(*) from attempts where outcome = 'expired' and stage = 'transcode'`); n != 1 {
		t.Errorf("%d expired, want 1", n)
	}
	if n := count(t, pool, `select count(*) from attempts where outcome = 'completed' and part = 0`); n != 5 {
		t.Errorf("%d completed, want 5", n)
	}
}
