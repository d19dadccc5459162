package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
)

// behindPooler returns a directory whose database is behind PgBouncer.
func behindPooler(t *testing.T) (p *workDir, direct string) {
	t.Helper()
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL))
	_, through := pgtest.NewBouncer(t, pool, "transaction")
	p = newPrivateWorkDir(t)
	cc := through.Config().ConnConfig
	p.env = append(p.env, fmt.Sprintf("DATABASE_URL=host=%s port=%d user=%s password=%s dbname=%s",
		cc.Host, cc.Port, cc.User, cc.Password, cc.Database))
	return p, pool.Config().ConnString()
}

func TestServe_WorksBehindAPooler(t *testing.T) {
	t.Parallel()
	p, _ := behindPooler(t)
	r := p.start("serve")
	r.waitForOutput(`notifications not connected`, 1)
	for range 3 {
		p.run(0, "submit", "clip.mp4")
	}
	r.waitForOutput(`"stage":"publish","attempt":1,"duration_ms"`, 3)
	r.signal(syscall.SIGTERM)
	r.end(0)
	text := r.stderr()
	if n := strings.Count(text, "notifications not connected"); n != 1 || !strings.Contains(text, "pooler in transaction mode") {
		t.Errorf("it logged %d times that it does not listen:\n%s", n, text)
	}
	for _, bad := range []string{`"level":"error"`, "database unavailable", "found by the sweep"} {
		if strings.Contains(text, bad) {
			t.Errorf("it logged %s:\n%s", bad, text)
		}
	}
}

func TestServe_ListensOnTheNotifyURL(t *testing.T) {
	t.Parallel()
	p, direct := behindPooler(t)
	r := p.start("serve", "--notify-url", direct)
	r.waitForOutput(`"msg":"notifications connected"`, 1)
	p.run(0, "submit", "clip.mp4")
	r.waitForOutput(`"stage":"publish","attempt":1,"duration_ms"`, 1)
	r.signal(syscall.SIGTERM)
	r.end(0)
	if text := r.stderr(); strings.Contains(text, "notifications not connected") || strings.Contains(text, "found by the sweep") {
		t.Errorf("it logged\n%s", text)
	}
}
