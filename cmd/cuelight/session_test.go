package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/pgtest"
)

func TestSeveralHostsMeanTheOneThatCanBeWrittenTo(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"postgres://u@one/db":                                        false,
		"postgres://u@one/db?sslmode=prefer":                         false, // two ways to one server
		"postgres://u@one,two/db":                                    true,
		"postgres://u@one:5432,one:5433/db?sslmode=disable":          true,
		"postgres://u@one/db?target_session_attrs=read-write":        true,
		"host=one,two dbname=db target_session_attrs=prefer-standby": true, // meant as it says
	} {
		config, err := pgxpool.ParseConfig(address)
		if err != nil {
			t.Fatal(err)
		}
		preferPrimary(config.ConnConfig)
		if got := config.ConnConfig.ValidateConnect != nil; got != want {
			t.Errorf("%s: a check is made: %t, want %t", address, got, want)
		}
	}
}

// behindPooler is a place whose database is reached through PgBouncer.
func behindPooler(t *testing.T) (p *place, direct string) {
	t.Helper()
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers))
	_, through := pgtest.NewBouncer(t, pool, "transaction")
	p = newPrivatePlace(t)
	cc := through.Config().ConnConfig
	p.env = append(p.env, fmt.Sprintf("DATABASE_URL=host=%s port=%d user=%s password=%s dbname=%s", cc.Host, cc.Port, cc.User, cc.Password, cc.Database))
	return p, pool.Config().ConnString()
}

func TestDaemonBehindAPoolerSaysOnceThatItHearsNothingAndWorks(t *testing.T) {
	t.Parallel()
	p, _ := behindPooler(t)
	r := p.start("serve")
	r.says(`not listening`, 1)
	for range 3 {
		p.run(0, "submit", "clip.mp4")
	}
	r.says(`"stage":"publish","attempt":1,"duration_ms"`, 3)
	r.signal(syscall.SIGTERM)
	r.end(0)
	text := r.stderr()
	if n := strings.Count(text, "not listening"); n != 1 || !strings.Contains(text, "pooler in transaction mode") {
		t.Errorf("it said %d times that it hears nothing:\n%s", n, text)
	}
	for _, bad := range []string{`"level":"error"`, "database away", "found by the sweep"} {
		if strings.Contains(text, bad) {
			t.Errorf("it logged %s:\n%s", bad, text)
		}
	}
}

func TestNotificationsMayHaveAnAddressOfTheirOwn(t *testing.T) {
	t.Parallel()
	p, direct := behindPooler(t)
	r := p.start("serve", "--notify-url", direct)
	r.says(`"msg":"listening"`, 1)
	p.run(0, "submit", "clip.mp4")
	r.says(`"stage":"publish","attempt":1,"duration_ms"`, 1)
	r.signal(syscall.SIGTERM)
	r.end(0)
	if text := r.stderr(); strings.Contains(text, "not listening") || strings.Contains(text, "found by the sweep") {
		t.Errorf("it logged\n%s", text)
	}
}
