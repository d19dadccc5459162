package main

import "testing"

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
