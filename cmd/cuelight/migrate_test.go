package main

import (
	"strings"
	"testing"
)

func TestServe_WaitsUntilTheTablesAreUpgraded(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	conn := p.connect()
	for _, sql := range []string{
		"update cuelight_schema set migrated_to = 13", "drop table deleted_tasks cascade",
		`insert into workers (pipeline, name, host, pid, version) values ('video', 'media1', 'media1', 7, 'v0.1.0')`,
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
	for _, want := range []string{"would apply 014_deleted_tasks", "worker media1 (process 7 on host media1) has version v0.1.0"} {
		if !strings.Contains(r.stderr(), want) {
			t.Errorf("--check printed %q, without %q", r.stderr(), want)
		}
	}
	if r := p.run(0, "migrate"); !strings.Contains(r.stderr(), "were upgraded from version 13") {
		t.Errorf("migrate printed %q", r.stderr())
	}
	daemon.waitForOutput(`"msg":"working"`, 1)
	daemon.stop()
}
