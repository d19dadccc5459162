package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
)

// daemon is a running `cuelight serve`.
type daemon struct {
	t     testing.TB
	cmd   *exec.Cmd
	ended chan error

	mu    sync.Mutex
	lines []map[string]any
}

// serve starts a daemon on a database and reads what it logs.
func (h environment) serve(pool *pgxpool.Pool, args ...string) *daemon {
	h.t.Helper()
	return h.serveWith(nil, pool, args...)
}

// serveWith is serve with additional environment variables.
func (h environment) serveWith(env []string, pool *pgxpool.Pool, args ...string) *daemon {
	h.t.Helper()
	env = append([]string{"CUELIGHT_DATABASE_URL=" + pool.Config().ConnString()}, env...)
	return h.start(env, append([]string{"serve"}, args...)...)
}

// start starts a command that runs until it is stopped, and reads what it logs.
func (h environment) start(env []string, args ...string) *daemon {
	h.t.Helper()
	cmd := h.command(args...)
	cmd.Env = append(cmd.Env, env...)
	return h.startCommand(cmd)
}

// startCommand is start for a prepared command.
func (h environment) startCommand(cmd *exec.Cmd) *daemon {
	h.t.Helper()
	logs, err := cmd.StderrPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	d := &daemon{t: h.t, cmd: cmd, ended: make(chan error, 1)}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	go func() {
		d.read(logs)
		d.ended <- cmd.Wait()
	}()
	h.t.Cleanup(d.stop)
	return d
}

func (d *daemon) read(logs io.Reader) {
	lines := bufio.NewScanner(logs)
	for lines.Scan() {
		entry := make(map[string]any)
		if err := json.Unmarshal(lines.Bytes(), &entry); err != nil {
			entry = map[string]any{"level": "error", "msg": "not JSON: " + lines.Text()}
		}
		d.mu.Lock()
		d.lines = append(d.lines, entry)
		d.mu.Unlock()
	}
}

// stop drains the daemon, which must exit with 0.
func (d *daemon) stop() {
	if d.cmd == nil {
		return
	}
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		d.t.Error(err)
	}
	select {
	case err := <-d.ended:
		if err != nil {
			d.t.Errorf("the daemon ended with %v: %v", err, d.logged("error"))
		}
	case <-time.After(time.Minute):
		d.t.Error("the daemon did not end")
		_ = d.cmd.Process.Kill()
	}
	d.cmd = nil
}

// logged returns the log entries of a level so far.
func (d *daemon) logged(level string) []map[string]any {
	d.mu.Lock()
	defer d.mu.Unlock()
	var found []map[string]any
	for _, l := range d.lines {
		if l["level"] == level {
			found = append(found, l)
		}
	}
	return found
}

// awaitLogged waits until the daemon has logged a message.
func (d *daemon) awaitLogged(message string) {
	d.t.Helper()
	waittest.Until(d.t, "a daemon logs "+message, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return slices.ContainsFunc(d.lines, func(l map[string]any) bool { return l["msg"] == message })
	})
}

// newDatabase creates a database with Cuelight's schema.
func (h environment) newDatabase() *pgxpool.Pool {
	h.t.Helper()
	pool := pgtest.New(h.t, pgtest.Schema{})
	cmd := h.command("migrate")
	cmd.Env = append(cmd.Env, "CUELIGHT_DATABASE_URL="+pool.Config().ConnString())
	if out, err := cmd.CombinedOutput(); err != nil {
		h.t.Fatalf("%v\n%s", err, out)
	}
	return pool
}

// count returns the number that a query selects.
func count(t testing.TB, pool *pgxpool.Pool, sql string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// awaitCount repeats a query until it selects the wanted number.
func awaitCount(t testing.TB, pool *pgxpool.Pool, want int, sql string) {
	t.Helper()
	waittest.Equal(t, "the result of "+sql, want, func() int { return count(t, pool, sql) })
}

func TestDaemons_ShareTheWork(t *testing.T) {
	const tasks = 24
	h := newEnvironment(t)
	pool := h.newDatabase()
	file := makeClip(t, t.TempDir(), time.Second, "64x48")
	var daemons []*daemon
	for range 4 {
		daemons = append(daemons, h.serve(pool))
	}
	awaitCount(t, pool, 4, `select count(*) from workers`)
	_, err := pool.Exec(t.Context(), `insert into tasks (source) select $1 from generate_series(1, $2)`, file, tasks)
	if err != nil {
		t.Fatal(err)
	}
	awaitCount(t, pool, tasks, `select count(*) from tasks where publish_status = 'completed'`)
	for _, d := range daemons {
		d.stop()
		if bad := append(d.logged("error"), d.logged("warn")...); len(bad) > 0 {
			t.Errorf("logged: %v", bad)
		}
	}
	if n := count(t, pool, `select count(*) from attempts where outcome = 'completed' and part = 0`); n != tasks*5 {
		t.Errorf("%d stages were completed, want %d", n, tasks*5)
	}
	if n := count(t, pool, `select count(*) from attempts where outcome not in ('completed', 'divided')`); n != 0 {
		t.Errorf("%d attempts were not completed", n)
	}
	if n := count(t, pool, `select count(distinct worker_id) from attempts`); n != 4 {
		t.Errorf("%d of the four daemons did all the work", n)
	}
	if n := count(t, pool, `select count(*) from workers where stopped_at is null`); n != 0 {
		t.Errorf("%d workers did not deregister", n)
	}
}

func TestInsert_FromPsqlWakesADaemon(t *testing.T) {
	psql := pgtest.Program(t, "psql")
	h := newEnvironment(t)
	pool := h.newDatabase()
	h.serve(pool)
	awaitCount(t, pool, 1, `select count(*) from workers`)
	file := makeClip(t, t.TempDir(), time.Second, "64x48")
	query := func(sql string) string {
		t.Helper()
		cmd := exec.Command(psql, "-XAtq", "-v", "file="+file, pool.Config().ConnString())
		cmd.Stdin = strings.NewReader(sql)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, &stderr)
		}
		if strings.Contains(stderr.String(), "ERROR") {
			return stderr.String()
		}
		return strings.TrimSpace(string(out))
	}
	id := query(`insert into tasks (source) values (:'file') returning id`)
	awaitCount(t, pool, 1, `select count(*) from tasks where publish_status = 'completed'`)
	wait := `select (extract(epoch from started_at - created_at) * 1000)::int
		from attempts join tasks on id = task_id where stage = 'ingest'`
	if ms := count(t, pool, wait); ms > 500 {
		t.Errorf("the daemon started %d ms after the insert", ms)
	}
	query(`select cuelight_video_retry('` + id + `', 'transcode')`)
	awaitCount(t, pool, 2, `select count(*) from attempts where stage = 'publish' and outcome = 'completed'`)
	if n := count(t, pool, `select count(*) from attempts where stage = 'ingest'`); n != 1 {
		t.Errorf("ingest ran %d times", n)
	}
	if got := query(`update tasks set ingest_status = 'pending'`); !strings.Contains(got, "_needs") {
		t.Errorf("psql printed %q, want the violated constraint", got)
	}
}

// Daemons with different directories could not read each other's files.
func TestDaemon_RefusesOtherDirectories(t *testing.T) {
	h, other := newEnvironment(t), newEnvironment(t)
	pool := h.newDatabase()
	h.serve(pool)
	awaitCount(t, pool, 1, `select count(*) from workers`)
	for text, args := range map[string][]string{
		"in another location than": {"serve"}, "another data directory": {"run", makeClip(t, t.TempDir(), time.Second, "64x48")},
	} {
		cmd := other.command(args...)
		cmd.Env = append(cmd.Env, "CUELIGHT_DATABASE_URL="+pool.Config().ConnString())
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(string(out), text) {
			t.Errorf("%s: exit code %d and %q", args[0], code, out)
		}
	}
	if n := count(t, pool, `select count(*) from tasks`); n != 0 {
		t.Errorf("%d tasks were submitted", n)
	}
}
