package main

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// A task that nobody can work on says so wherever one looks for it, also when its transcode is divided.
func TestDoctorAndList_NameWhatNoWorkerOffers(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	address, _ := strings.CutPrefix(p.env[len(p.env)-1], "DATABASE_URL=")
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, sql := range []string{
		`insert into tasks (source, placement, ingest_status, metadata_status)
		 values ('/a.mp4', '{"transcode": {"requires": ["gpu"]}}', 'completed', 'completed')`,
		`update steps set status = 'divided', parts = 2, open_parts = 2, placement = null where stage = 'transcode'`,
		`insert into steps (task_id, stage, part, line, rank, turn, placement)
		 select id, 'transcode', n, 1, 0, n, placement -> 'transcode' from tasks cross join generate_series(1, 2) as n`,
		`select set_config('cuelight.exchange', 'claims', false)`,
		`update tasks set transcode_status = 'divided'`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	doctor := p.run(0, "doctor").stdout.String()
	if !strings.Contains(doctor, "transcode waits: it requires gpu, and no running worker offers that (tasks: 1)") {
		t.Errorf("doctor prints\n%s", doctor)
	}
	if list := p.run(0, "list").stdout.String(); !strings.Contains(list, "transcode 0% (0/2), waits for a worker with gpu") {
		t.Errorf("list prints\n%s", list)
	}
}
