package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
)

// mustRun runs a program that must succeed.
func mustRun(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// dump writes a dump of the database, as docs/operations.md says.
func dump(t testing.TB, pool *pgxpool.Pool, file string) {
	t.Helper()
	mustRun(t, pgtest.Program(t, "pg_dump"), "--format=custom", "--file="+file, "--dbname="+pool.Config().ConnString())
}

// restore loads a dump into a database of another server.
func restore(t testing.TB, file string) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.NewServer(t, pgtest.ServerOptions{}).New(pgtest.Schema{})
	mustRun(t, pgtest.Program(t, "pg_restore"), "--no-owner", "--exit-on-error", "--dbname="+pool.Config().ConnString(), file)
	return pool
}

// addFile makes a clip appear in a directory.
func addFile(t testing.TB, dir, name string, length time.Duration) {
	t.Helper()
	if err := os.Rename(makeClip(t, filepath.Dir(dir), length, "64x48"), filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// The daemon works while the database is dumped, and then its files are copied. It is killed, and everything of it lost.
func TestBackup_RestoredElsewhereGoesOn(t *testing.T) {
	t.Parallel()
	h, other := newEnvironment(t), newEnvironment(t)
	pool := h.newDatabase()
	watched, backup := filepath.Join(filepath.Dir(h.data), "watched"), t.TempDir()
	if err := os.Mkdir(watched, 0o755); err != nil {
		t.Fatal(err)
	}
	gate, ffmpeg := h.newGate()
	env := []string{ffmpeg, "CUELIGHT_SANDBOX=off", "CUELIGHT_WATCH=" + watched, "CUELIGHT_SETTLE=1s", "CUELIGHT_LEASE=10s"}
	first := h.serveWith(env, pool)

	gate.open()
	addFile(t, watched, "published.mp4", time.Second)
	awaitCount(t, pool, 1, `select count(*) from tasks where publish_status = 'completed'`)
	gate.shut()
	addFile(t, watched, "running.mp4", 1200*time.Millisecond)
	gate.awaitWaiting(1)
	addFile(t, watched, "waiting.mp4", 1400*time.Millisecond)
	awaitCount(t, pool, 3, `select count(*) from tasks where ingest_status = 'completed'`)
	dump(t, pool, filepath.Join(backup, "cuelight.dump"))
	addFile(t, watched, "later.mp4", 1600*time.Millisecond)
	awaitCount(t, pool, 4, `select count(*) from tasks where ingest_status = 'completed'`)
	mustRun(t, "cp", "-a", h.data, h.publish, watched, backup)
	lastEvent := count(t, pool, `select max(id) from cuelight_video_events(0)`)
	first.kill()
	pool.Close()

	for _, dir := range []string{h.data, h.publish, watched} {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	restored := restore(t, filepath.Join(backup, "cuelight.dump"))
	mustRun(t, "cp", "-a", filepath.Join(backup, "data"), other.data)
	mustRun(t, "cp", "-a", filepath.Join(backup, "published"), other.publish)
	mustRun(t, "cp", "-a", filepath.Join(backup, "watched"), watched) // the same path, and the times of the files
	gate.open()
	for _, master := range publishedMasters(t, other) {
		checkPlayback(t, master)
	}
	second := other.serveWith(env, restored)
	awaitCount(t, restored, 4, `select count(*) from tasks where publish_status = 'completed'`)

	masters := publishedMasters(t, other)
	if len(masters) != 4 {
		t.Errorf("published: %v", masters)
	}
	for _, master := range masters {
		checkPlayback(t, master)
	}
	for sql, want := range map[string]int{
		`select count(*) from tasks`:               4, // nothing was submitted twice
		`select count(distinct source) from tasks`: 4,
		// The work in progress counts as no attempt, and what was completed is not repeated.
		`select count(*) from attempts where outcome not in ('completed', 'divided', 'released')`:                        0,
		`select count(*) from attempts where outcome = 'released' and error not like '%that this one was restored from'`: 0,
		`select count(*) from attempts where stage = 'ingest'`:                                                           4,
		`select count(*) from attempts where stage = 'publish'`:                                                          4,
	} {
		if n := count(t, restored, sql); n != want {
			t.Errorf("%s: %d, want %d", sql, n, want)
		}
	}
	// A reader who had read everything before the loss reads all that happened since the restore.
	if n := count(t, restored, fmt.Sprintf(`select count(*) from cuelight_video_events(%d) where type in ('submitted', 'completed')`,
		lastEvent)); n != 1+3 {
		t.Errorf("after the restore a reader sees %d tasks that were submitted or completed, want 1 and 3", n)
	}
	if n := count(t, restored, `select count(*) from attempts where outcome = 'released'`); n == 0 {
		t.Error("no work was in progress when the database was dumped")
	}
	second.stop()
	if bad := second.logged("error"); len(bad) > 0 {
		t.Errorf("logged: %v", bad)
	}
}

// A private database that is stopped is a directory like the others.
func TestBackup_OfAStoppedPrivateDatabaseIsItsDirectory(t *testing.T) {
	t.Parallel()
	h, other := newEnvironment(t), newEnvironment(t)
	clip := makeClip(t, t.TempDir(), time.Second, "64x48")
	if _, code := h.run(clip); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	mustRun(t, "cp", "-a", h.data, other.data)
	mustRun(t, "cp", "-a", h.publish, other.publish)
	if err := os.RemoveAll(h.data); err != nil {
		t.Fatal(err)
	}
	outcomes, code := other.run(clip)
	if code != 0 {
		t.Fatalf("exit code %d: %v", code, outcomes)
	}
	masters := publishedMasters(t, other)
	if len(masters) != 2 {
		t.Errorf("published: %v", masters)
	}
	for _, master := range masters {
		checkPlayback(t, master)
	}
}
