package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
)

// manager is a service manager: it receives a daemon's notifications.
type manager struct {
	t     *testing.T
	lines chan string
}

func (p *workDir) manager(watchdog string) *manager {
	p.t.Helper()
	// Not below p.dir, whose path may be too long for a socket.
	dir, err := os.MkdirTemp("/tmp", "cuelight-")
	if err != nil {
		p.t.Fatal(err)
	}
	address := filepath.Join(dir, "n")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		p.t.Fatal(err)
	}
	m := &manager{p.t, make(chan string, 10000)}
	var reading sync.WaitGroup
	reading.Go(func() { m.read(conn) })
	p.t.Cleanup(func() { conn.Close(); reading.Wait(); os.RemoveAll(dir) })
	p.env = append(p.env, "NOTIFY_SOCKET="+address, "WATCHDOG_USEC="+watchdog)
	return m
}

func (m *manager) read(conn net.Conn) {
	for text := make([]byte, 4096); ; {
		n, err := conn.Read(text)
		if err != nil {
			return
		}
		for line := range strings.Lines(string(text[:n])) {
			m.lines <- strings.TrimSpace(line)
		}
	}
}

// waitFor waits for a line.
func (m *manager) waitFor(line string) {
	m.t.Helper()
	for deadline := time.After(waittest.Limit); ; {
		select {
		case got := <-m.lines:
			if got == line {
				return
			}
		case <-deadline:
			m.t.Fatalf("%s was not received", line)
		}
	}
}

func TestServe_WorksOnWatchedFilesAndInsertedTasks(t *testing.T) {
	t.Parallel()
	pgtest.Program(t, "psql")
	p := newPrivateWorkDir(t)
	m := p.manager("300000")
	box := p.path("box")
	if err := os.Mkdir(box, 0o755); err != nil {
		t.Fatal(err)
	}
	// The data directory is inside, and its files must not be submitted.
	p.env = append(p.env, "CUELIGHT_DATA_DIR="+filepath.Join(box, "data"))

	r := p.start("serve", "--watch", "box", "--settle", "300ms")
	m.waitFor("READY=1")
	m.waitFor("WATCHDOG=1")
	r.waitForOutput(`"msg":"watching"`, 1)
	if err := os.Rename(p.path("clip.mp4"), filepath.Join(box, "clip.mp4")); err != nil {
		t.Fatal(err)
	}
	r.waitForOutput(`"stage":"publish","attempt":1,"duration_ms"`, 1)

	p.run(0, "db", "psql", "--", "-qc", "insert into tasks (source) values ('"+p.path("other.mp4")+"')")
	r.waitForOutput(`"stage":"publish","attempt":1,"duration_ms"`, 2)

	r.signal(syscall.SIGTERM)
	m.waitFor("STOPPING=1")
	r.end(0)
	if r.stdout.Len() > 0 {
		t.Errorf("standard output has %q", &r.stdout)
	}

	// After a restart no file is submitted again: the next file is a new one.
	again := p.start("serve", "--watch", "box", "--settle", "300ms")
	again.waitForOutput(`"msg":"watching"`, 1)
	video, err := sample()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(box, "new.mp4"), video, 0o644); err != nil {
		t.Fatal(err)
	}
	again.waitForOutput(`"stage":"publish","attempt":1,"duration_ms"`, 1)
	again.signal(syscall.SIGINT)
	again.end(0)

	tasks := p.list()
	if len(tasks) != 3 {
		t.Errorf("%d tasks: %+v", len(tasks), tasks)
	}
	for _, task := range tasks {
		if task.Status != store.StatusCompleted {
			t.Errorf("%s is %s", task.Source, task.Status)
		}
	}
	if text := r.stderr() + again.stderr(); strings.Contains(text, `"level":"error"`) {
		t.Errorf("it logged\n%s", text)
	}
}

func TestServe_StopsAtOnceOnTheSecondSignal(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	p.gate()
	p.run(0, "submit", "clip.mp4")
	r := p.start("serve", "--grace", "10m")
	p.waitReached()
	r.signal(syscall.SIGTERM)
	r.waitForOutput(`"msg":"draining"`, 1)
	r.signal(syscall.SIGTERM)
	r.end(143)
	if n := p.atGate(); n > 0 {
		t.Errorf("%d processes of ffmpeg are left", n)
	}
	p.noneHeld()
}

func TestCancel_StopsWorkInAnotherProcess(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	p.gate()
	r := p.start("run", "--json", "clip.mp4")
	p.waitReached()
	p.run(0, "cancel", p.list()[0].TaskID.String())
	r.end(1)
	type ended struct {
		Status store.Status
		Error  *string
	}
	if got := decode[ended](r); len(got) != 1 || got[0] != (ended{Status: store.StatusCancelled}) {
		t.Errorf("reports %+v", got)
	}
	if n := p.atGate(); n > 0 {
		t.Errorf("%d processes of ffmpeg are left", n)
	}
}

func TestWatchAndWait_SeeTheWorkOfOtherProcesses(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	daemon := p.start("serve")
	daemon.waitForOutput(`"msg":"working"`, 1)
	waited := p.start("submit", "--wait", "--json", "clip.mp4", "missing.mp4")
	waited.end(3)
	if got := decode[reported](waited); len(got) != 2 {
		t.Errorf("reports %+v", got)
	}
	for _, task := range p.list() {
		code := 0
		if task.Status == store.StatusDead {
			code = 1
		}
		watched := p.run(code, "watch", "--json", task.TaskID.String())
		if got := decode[reported](watched); len(got) != 1 || got[0].Status != task.Status {
			t.Errorf("watching a task that has ended shows %+v", got)
		}
	}
	daemon.signal(syscall.SIGTERM)
	daemon.end(0)
}

func TestWatch_RunsUntilItIsInterrupted(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	p.gate()
	r := p.start("run", "clip.mp4")
	p.waitReached()
	w := p.start("watch")
	w.waitForOutput("clip.mp4: ", 1)
	p.open()
	w.waitForOutput("clip.mp4: transcode completed", 1)
	r.end(0)
	w.signal(syscall.SIGINT)
	w.end(0)
}

func TestServe_WaitsForADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	p := newPrivateWorkDir(t)
	server := pgtest.NewServer(t, pgtest.ServerOptions{})
	p.env = append(p.env, "DATABASE_URL="+server.URL("postgres"))
	m := p.manager("")
	p.run(0, "migrate")
	p.run(0, "submit", "missing.mp4")
	server.Stop(pgtest.Fast)

	r := p.start("serve")
	m.waitFor("STATUS=waiting for the database")
	r.waitForOutput(`"msg":"database unavailable"`, 1)
	server.Start()
	r.waitForOutput(`"msg":"stage dead"`, 1)

	server.Restart(pgtest.Immediate)
	p.run(0, "submit", "missing.mp4")
	r.waitForOutput(`"msg":"stage dead"`, 2)
	r.signal(syscall.SIGTERM)
	r.end(0)
	if n := strings.Count(r.stderr(), `"msg":"database unavailable"`); n > 2 {
		t.Errorf("it logged %d times that the database is unavailable", n)
	}
}

func TestServe_EndsWhenTheLoginFails(t *testing.T) {
	t.Parallel()
	p := newPrivateWorkDir(t)
	server := pgtest.NewServer(t, pgtest.ServerOptions{})
	p.env = append(p.env, "DATABASE_URL="+server.URL("nowhere"))
	r := p.run(10, "serve")
	if !strings.Contains(r.stderr(), `database "nowhere" does not exist`) {
		t.Errorf("it printed\n%s", r.stderr())
	}
}
