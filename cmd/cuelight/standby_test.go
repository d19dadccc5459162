package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
)

const (
	readsStandby = `"msg":"clients read from the standby"`
	readsPrimary = `"msg":"clients read from the primary, not from the standby"`
)

// newStandby returns a directory whose database has a standby.
func newStandby(t *testing.T) (p *workDir, server *pgtest.Server, database string) {
	t.Helper()
	primary := pgtest.NewServer(t, pgtest.ServerOptions{Durable: true})
	database = primary.New(pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL)).Config().ConnConfig.Database
	p = newPrivateWorkDir(t)
	p.env = append(p.env, "DATABASE_URL="+primary.URL(database))
	return p, primary.Standby(), database
}

func TestServe_ReadsFromAStandby(t *testing.T) {
	t.Parallel()
	p, server, database := newStandby(t)
	p.run(0, "pause")
	r := p.start("serve", "--listen", "127.0.0.1:0", "--read-database-url", server.URL(database), "--read-max-lag", "2s")
	s := p.site(r)
	r.waitForOutput(readsStandby, 1)
	shows := func(text string) {
		t.Helper()
		waittest.Until(t, "it shows "+text, func() bool {
			return strings.Contains(string(s.do(http.StatusOK, http.MethodGet, "", nil)), text) ||
				strings.Contains(string(s.do(http.StatusOK, http.MethodGet, "metrics", nil)), text)
		})
	}
	shows("Read from a standby, less than a second behind")
	shows("cuelight_standby_used 1\n")

	standby := server.Pool(database)
	ask := func(sql string) {
		t.Helper()
		if _, err := standby.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	ask("select pg_wal_replay_pause()")
	for i := range 5 { // longer than the standby may be behind
		source := fmt.Sprintf("https://media.example/%d.mp4", i)
		var made struct {
			TaskID string `json:"task_id"`
		}
		reply := s.do(http.StatusCreated, http.MethodPost, "api/v1/tasks", []byte(`{"source": "`+source+`"}`))
		if err := json.Unmarshal(reply, &made); err != nil {
			t.Fatal(err)
		}
		at := "api/v1/tasks/" + made.TaskID
		for _, path := range []string{"api/v1/tasks", at, "videos/" + made.TaskID} {
			if got := string(s.do(http.StatusOK, http.MethodGet, path, nil)); !strings.Contains(got, fmt.Sprintf("%d.mp4", i)) {
				t.Errorf("/%s does not show the new task %d", path, i)
			}
		}
		shows(fmt.Sprintf("%d.mp4", i)) // the board is read a moment later
		s.do(http.StatusOK, http.MethodPost, at+"/cancel", nil)
		if got := string(s.do(http.StatusOK, http.MethodGet, at, nil)); !strings.Contains(got, `"status":"cancelled"`) {
			t.Errorf("task %d is not cancelled: %s", i, got)
		}
		if got := string(s.do(http.StatusOK, http.MethodGet, at+"/events", nil)); !strings.Contains(got, "event: cancelled\n") {
			t.Errorf("the events of task %d are %s", i, got)
		}
		s.do(http.StatusOK, http.MethodDelete, at, nil)
		s.do(http.StatusNotFound, http.MethodGet, at, nil)
		if got := string(s.do(http.StatusOK, http.MethodGet, "api/v1/deleted-tasks", nil)); !strings.Contains(got, source) {
			t.Errorf("task %d is not among the deleted tasks", i)
		}
	}
	r.waitForOutput(readsPrimary, 1)
	shows("cuelight_standby_used 0\n")
	shows("Read from the primary, not from the standby: it is ")
	ask("select pg_wal_replay_resume()")
	r.waitForOutput(readsStandby, 2)

	standby.Close()
	server.Stop(pgtest.Immediate)
	for range 5 {
		s.do(http.StatusOK, http.MethodGet, "api/v1/tasks", nil)
	}
	r.waitForOutput(readsPrimary, 2)
	server.Start()
	r.waitForOutput(readsStandby, 3)
	s.do(http.StatusOK, http.MethodGet, "api/v1/tasks", nil)
	r.signal(syscall.SIGTERM)
	r.end(0)
}

// Deliveries go on while the standby replays nothing, and their receivers ask about what they got.
func TestServe_ShowsReceiversOfWebhooksWhatTheyWereSent(t *testing.T) {
	t.Parallel()
	p, server, database := newStandby(t)
	delivered := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct {
			Data struct {
				Task struct{ ID string }
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		delivered <- body.Data.Task.ID
	}))
	defer receiver.Close()
	p.run(0, "pause")
	p.run(0, "webhooks", "add", "--type", "submitted", "--webhook-allow", "127.0.0.1", receiver.URL)
	r := p.start("serve", "--listen", "127.0.0.1:0", "--webhook-allow", "127.0.0.1",
		"--read-database-url", server.URL(database), "--read-max-lag", "1h")
	s := p.site(r)
	r.waitForOutput(readsStandby, 1)
	if _, err := server.Pool(database).Exec(t.Context(), "select pg_wal_replay_pause()"); err != nil {
		t.Fatal(err)
	}
	p.run(0, "submit", "clip.mp4")
	select {
	case id := <-delivered:
		s.do(http.StatusOK, http.MethodGet, "api/v1/tasks/"+id, nil)
	case <-time.After(waittest.Limit):
		t.Errorf("the webhook was not called:\n%s", r.stderr())
	}
	r.signal(syscall.SIGTERM)
	r.end(0)
	if text := r.stderr(); strings.Contains(text, readsPrimary) {
		t.Errorf("it logged\n%s", text)
	}
}

func TestServe_WorksWithoutTheStandby(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	r := p.start("serve", "--listen", "127.0.0.1:0", "--read-database-url", "postgres://nobody@127.0.0.1:1/none")
	s := p.site(r)
	r.waitForOutput(readsPrimary, 1)
	p.run(0, "submit", "clip.mp4")
	r.waitForOutput(`"stage":"publish","attempt":1,"duration_ms"`, 1)
	s.do(http.StatusOK, http.MethodGet, "api/v1/tasks", nil)
	s.do(http.StatusOK, http.MethodGet, "readyz", nil)
	r.signal(syscall.SIGTERM)
	r.end(0)
	bad := p.run(2, "serve", "--listen", "127.0.0.1:0", "--read-database-url", "postgres://u:geheim@[/x").stderr()
	if !strings.Contains(bad, "--read-database-url") || strings.Contains(bad, "geheim") {
		t.Errorf("a wrong address prints\n%s", bad)
	}
}

func TestDoctor_ChecksTheStandby(t *testing.T) {
	t.Parallel()
	p, server, database := newStandby(t)
	checked := func(code int, address string) string {
		t.Helper()
		r := p.start("doctor", "--read-database-url", address)
		r.end(code)
		for line := range strings.Lines(r.stdout.String()) {
			if strings.Contains(line, " standby ") {
				return line
			}
		}
		return "nothing"
	}
	if got := checked(0, server.URL(database)); !strings.HasPrefix(got, "ok ") || !strings.HasSuffix(got, " behind\n") {
		t.Errorf("doctor prints %s", got)
	}
	for _, v := range p.env {
		if primary, ok := strings.CutPrefix(v, "DATABASE_URL="); ok {
			if got := checked(1, primary); !strings.HasPrefix(got, "failed ") || !strings.Contains(got, "it is not a standby") {
				t.Errorf("doctor prints %s", got)
			}
		}
	}
}
