package main

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestServe_WaitsUntilTheTablesAreUpgraded(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	conn := p.connect()
	for _, sql := range []string{
		"update pipeline set version = -1",
		`insert into workers (name, host, pid, version) values ('media1', 'media1', 7, 'v0.1.0')`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	daemon := p.start("serve")
	daemon.waitForOutput("waiting until cuelight migrate has upgraded the tables", 1)
	if r := p.run(13, "list"); !strings.Contains(r.stderr(), "cuelight migrate") {
		t.Errorf("list printed %q", r.stderr())
	}
	r := p.run(13, "migrate", "--check")
	for _, want := range []string{
		"tables are older than this program", "worker media1 (process 7 on host media1) has version v0.1.0",
	} {
		if !strings.Contains(r.stderr(), want) {
			t.Errorf("--check printed %q, without %q", r.stderr(), want)
		}
	}
	if r := p.run(0, "migrate"); !strings.Contains(r.stderr(), "were upgraded from version -1") {
		t.Errorf("migrate printed %q", r.stderr())
	}
	daemon.waitForOutput(`"msg":"working"`, 1)
	daemon.stop()
}

func TestMigrate_CreatesTheTablesOfThePipelineAndOfItsOperators(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	conn := p.connect()
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	const none = "drop schema public cascade; create schema public"
	for _, c := range []struct{ change, done string }{
		{none, "were created"}, {"drop table cuelight_keys, cuelight_leases", "the tables in"},
	} {
		exec(c.change)
		for _, command := range [][]string{{"keys", "list"}, {"list"}, {"migrate", "--check"}} {
			if r := p.run(13, command...); !strings.Contains(r.stderr(), "cuelight migrate") {
				t.Errorf("%s printed %q", command, r.stderr())
			}
		}
		if r := p.run(0, "migrate"); !strings.Contains(r.stderr(), c.done) {
			t.Errorf("migrate printed %q", r.stderr())
		}
		p.run(0, "keys", "list")
		p.run(0, "list")
		p.run(0, "migrate", "--check")
	}
	exec(none)
	exec(p.run(0, "migrate", "--print").stdout.String())
	p.run(0, "migrate", "--check")
}
