package main

import (
	"strings"
	"testing"
)

func TestRetryAll_PrintsItsProgress(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	conn := p.connect()
	if _, err := conn.Exec(t.Context(),
		`insert into tasks (source, ingest_status) select '/a.mp4', 'dead' from generate_series(1, 4500)`); err != nil {
		t.Fatal(err)
	}
	r := p.run(0, "retry", "--all", "--yes")
	if want := "2000 of 4500 tasks\n4000 of 4500 tasks"; r.stderr() != want ||
		r.stdout.String() != "4500 tasks scheduled for retry\n" {
		t.Errorf("it printed %q and %q, want %q", r.stderr(), r.stdout.String(), want)
	}
	var tasks int
	err := conn.QueryRow(t.Context(),
		`select sum((detail->>'tasks')::int) from cuelight_audit where action = 'retry_all'`).Scan(&tasks)
	if err != nil || tasks != 4500 {
		t.Errorf("the audit has %d tasks, %v", tasks, err)
	}
}

func TestRetry_ExplainsWhichRenditionsItCannotMake(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	conn := p.connect()
	var id string
	if err := conn.QueryRow(t.Context(), `insert into tasks (source) values ('/a.mp4') returning id`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{id, "--renditions", "720p"}, "the task has none yet that could be kept"},
		{[]string{id, "--renditions", "720p", "--from", "publish"}, "cannot be from publish"},
		{[]string{id, "--renditions", "700p"}, "it must be heights such as 1080p,720p"},
		{[]string{"--all", "--renditions", "720p"}, "--all cannot be combined with --renditions"},
	} {
		if r := p.run(2, append([]string{"retry"}, c.args...)...); !strings.Contains(r.stderr(), c.want) {
			t.Errorf("%q printed %q", c.args, r.stderr())
		}
	}
}

func TestChunkFlag_SaysWhichLengthsItTakes(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	for _, length := range []string{"5s", "2h", "soon"} {
		r := p.run(2, "run", "--chunk", length, "film.mp4")
		if !strings.Contains(r.stderr(), "--chunk "+length+": it must be 6s to 1h, or never") {
			t.Errorf("it printed %q", r.stderr())
		}
	}
}
