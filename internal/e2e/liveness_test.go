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
)

// gate is an ffmpeg that, asked to transcode, waits until it is opened, and
// writes down who waits.
type gate struct {
	t   testing.TB
	dir string
}

func (h home) gate() (gate, string) {
	h.t.Helper()
	real, err := exec.LookPath("ffmpeg")
	if err != nil {
		h.t.Fatal(err)
	}
	g := gate{h.t, filepath.Dir(h.data)}
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

func (g gate) open() {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, "open"), nil, 0o644); err != nil {
		g.t.Fatal(err)
	}
}

// waiting are the processes at the gate that still live.
func (g gate) waiting() (pids []int) {
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

// await asks again and again until there are so many at the gate.
func (g gate) await(n int) {
	g.t.Helper()
	for late := time.Now().Add(time.Minute); len(g.waiting()) != n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(late) {
			g.t.Fatalf("%d wait at the gate, want %d", len(g.waiting()), n)
		}
	}
}

func (h home) gated(pool *pgxpool.Pool) (gate, string) {
	h.t.Helper()
	g, env := h.gate()
	file := clip(h.t, h.t.TempDir(), time.Second, "64x48")
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

// With nothing but default settings.
func TestWorkOfAKilledDaemonGoesOnElsewhereWithinTenSeconds(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	pool := h.migrated()
	g, env := h.gated(pool)
	first := h.serveWith([]string{env, "CUELIGHT_SANDBOX=off"}, pool)
	g.await(1)
	other := h.serveWith([]string{env, "CUELIGHT_SANDBOX=off"}, pool)
	within(t, 30*time.Second, pool, 2, `select count(*) from workers where session is not null`)
	// Whoever has just come judges nobody yet.
	within(t, 30*time.Second, pool, 1, `select count(*) from workers where started_at < now() - interval '9 s' and started_at > (select min(started_at) from workers)`)
	killed := time.Now()
	first.kill()
	within(t, 30*time.Second, pool, 1, `select count(*) from attempts where outcome = 'expired' and stage = 'transcode'`)
	g.await(1) // the other's: the first's died with it
	// How long ffmpeg takes to be there on a busy machine is no part of the promise.
	var claimed time.Time
	if err := pool.QueryRow(t.Context(), `select transcode_locked_at from tasks`).Scan(&claimed); err != nil {
		t.Fatal(err)
	}
	if took := claimed.Sub(killed); took < 0 || took > 10*time.Second {
		t.Errorf("the other daemon had the work after %s", took)
	}
	g.open()
	within(t, time.Minute, pool, 1, `select count(*) from tasks where publish_status = 'completed'`)
	if n := count(t, pool, `select transcode_attempts from tasks`); n != 2 {
		t.Errorf("%d attempts were counted, want 2", n)
	}
	other.stop()
}

func TestDaemonThatStartsAgainTakesUpItsOwnWorkAtOnce(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	pool := h.migrated()
	g, env := h.gated(pool)
	h.serveWith([]string{env, "CUELIGHT_SANDBOX=off"}, pool).killAt(g)
	began := time.Now()
	again := h.serveWith([]string{env, "CUELIGHT_SANDBOX=off"}, pool)
	within(t, 30*time.Second, pool, 1, `select count(*) from attempts where outcome = 'expired' and stage = 'transcode'`)
	g.await(1)
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("it took %s", took)
	}
	g.open()
	within(t, time.Minute, pool, 1, `select count(*) from tasks where publish_status = 'completed'`)
	again.stop()
}

// killAt kills the daemon once its transcode waits.
func (d *daemon) killAt(g gate) {
	d.t.Helper()
	g.await(1)
	d.kill()
	g.await(0)
}

// A process that stood still for longer than its lease finds that others have
// its work: it changes nothing, ends its own ffmpeg, and says so once.
func TestDaemonThatStoodStillForLongerThanItsLeaseChangesNothing(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	pool := h.migrated()
	g, env := h.gated(pool)
	still := h.serveWith([]string{env, "CUELIGHT_SANDBOX=off"}, pool, "--lease", "5s")
	g.await(1)
	theirs := g.waiting()
	if err := still.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	other := h.serveWith([]string{env, "CUELIGHT_SANDBOX=off"}, pool, "--lease", "5s")
	g.await(2)
	if err := still.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	g.await(1)
	for _, pid := range theirs {
		if syscall.Kill(pid, 0) == nil {
			t.Error("the work that was taken from it goes on")
		}
	}
	within(t, 30*time.Second, pool, 2, `select count(*) from workers where lost_at is null`) // it registered anew
	g.open()
	within(t, time.Minute, pool, 1, `select count(*) from tasks where publish_status = 'completed'`)
	still.stop()
	other.stop()
	taken := 0
	for _, l := range still.logged("info") {
		if l["stage"] == "transcode" && (l["msg"] == "stage taken back" || l["msg"] == "stage given back") {
			taken++
		}
	}
	if taken != 1 {
		t.Errorf("it said %d times that its claim is another's now, want once: %v", taken, still.logged("info"))
	}
	if n := count(t, pool, `select count(*) from attempts where outcome = 'expired' and stage = 'transcode'`); n != 1 {
		t.Errorf("%d expired, want 1", n)
	}
	if n := count(t, pool, `select count(*) from attempts where outcome = 'completed'`); n != 5 {
		t.Errorf("%d completed, want 5", n)
	}
}
