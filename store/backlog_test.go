package store_test

import (
	"testing"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestBacklog_CountsWhatWorkersCouldDo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	want := func(stage string, n int) {
		t.Helper()
		var got int
		must(t, b.pool.QueryRow(t.Context(), "select cuelight_video_backlog($1)", stage).Scan(&got))
		if got != n {
			t.Errorf("the backlog of %s is %d, want %d", stage, got, n)
		}
	}
	w := b.worker()
	for range 3 {
		b.submit()
	}
	first, second := b.claim(w, ingest), b.claim(w, ingest)
	want("ingest", 3)
	want("transcode", 0)
	b.exchange(w, 0, []engine.Report{completed(first), completed(second)})
	want("ingest", 1)
	want("transcode", 2)
	b.exchange(w, 0, []engine.Report{division(b.claim(w, transcode), 3)})
	want("transcode", 1+3)
	parts := b.Graph().Queue(transcode, true)
	in := exchangeRequest(w, 0, nil)
	in.FreeSlots, in.ClaimFrom = make([]int, parts+1), make([]bool, parts+1)
	in.FreeSlots[parts], in.ClaimFrom[parts] = 1, true
	out, err := b.Exchange(t.Context(), in)
	if err != nil || len(out.Claims) != 1 {
		t.Fatalf("claimed %+v, %v, want a part", out.Claims, err)
	}
	want("transcode", 1+3)
	b.exchange(w, 0, []engine.Report{completed(out.Claims[0])})
	want("transcode", 1+2)

	// Without a process nothing makes tasks and parts ready whose time has come.
	for _, sql := range []string{
		"update steps set status = 'waiting', run_at = now() + interval '1 hour' where stage = 'ingest' and status = 'ready'",
		"update steps set status = 'waiting', run_at = now() + interval '1 hour' where part > 1 and status = 'ready'",
	} {
		b.exec(sql)
	}
	want("ingest", 0)
	want("transcode", 1)
	b.exec("update steps set run_at = now() - interval '1 hour' where status = 'waiting'")
	want("ingest", 1)
	want("transcode", 1+2)

	must(t, b.Pause(t.Context(), store.Pause{Stage: "ingest"}))
	want("ingest", 0)
	want("metadata", 2)
	must(t, b.Pause(t.Context(), store.Pause{Host: "media1"}))
	want("metadata", 2)
	must(t, b.Pause(t.Context(), store.Pause{}))
	b.claim(w, metadata)
	want("metadata", 1)
	if _, err := b.pool.Exec(t.Context(), "select cuelight_video_backlog('nothing')"); err == nil {
		t.Error("an unknown stage has a backlog")
	}
}

// The plan of a statement in a function is made once per connection, when the tables may be new. A statement
// that cannot use its partial index is quick then, and reads all of a large table later.
func TestBacklog_ReadsOnlyWhatItCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn, err := b.pool.Acquire(t.Context())
	must(t, err)
	defer conn.Release()
	check := func(when string, want int) {
		t.Helper()
		tx, err := conn.Begin(t.Context()) // in which the server does not reset its counters
		must(t, err)
		counters := func() (scans, rows int) {
			must(t, tx.QueryRow(t.Context(), `
				select sum(seq_scan), sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) from pg_stat_xact_user_tables
				 where relname in ('tasks', 'steps')`).Scan(&scans, &rows))
			return scans, rows
		}
		scansBefore, rowsBefore := counters()
		var counted int
		must(t, tx.QueryRow(t.Context(), `
			select sum(cuelight_video_backlog(stage)) from unnest(array['ingest', 'transcode', 'metadata', 'assemble', 'publish']) as stage`,
		).Scan(&counted))
		scans, rows := counters()
		must(t, tx.Commit(t.Context()))
		if counted != want || scans > scansBefore || rows-rowsBefore > counted+100+4*1000 { // those that are due, once for each stage
			t.Errorf("%s: it counts %d, want %d; it reads whole tables %d times, and %d rows",
				when, counted, want, scans-scansBefore, rows-rowsBefore)
		}
	}
	for range 10 { // more often than plans are made for given arguments
		check("in new tables", 0)
	}
	for _, sql := range []string{
		`alter table tasks disable trigger user`,
		`insert into tasks (source, ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
		 select n::text, 'completed', 'completed', 'completed', 'completed', 'completed' from generate_series(1, 50000) as n`,
		`insert into steps (task_id, stage, part, rank, turn, status) select id, 'transcode', 1, 0, 1, 'completed' from tasks`,
		`insert into tasks (source) select n::text from generate_series(1, 5000) as n`,
		`insert into steps (task_id, stage, rank, turn, status, run_at)
		 select id, 'ingest', 0, 1, case when n > 500 then 'waiting' else 'ready' end::cuelight_step_status,
		        case when n > 500 then now() + n * interval '1 min' - interval '1000 min' end
		   from (select id, source::int as n from tasks where ingest_status = 'pending') as t`,
		`insert into tasks (source, ingest_status, metadata_status, transcode_status) values ('film', 'completed', 'completed', 'divided')`,
		`insert into steps (task_id, stage, part, rank, turn, status, run_at)
		 select id, 'transcode', n, 0, 1, case when n > 500 then 'waiting' else 'ready' end::cuelight_step_status,
		        case when n > 500 then now() + n * interval '1 min' - interval '1000 min' end
		   from tasks cross join generate_series(1, 5000) as n where transcode_status = 'divided'`,
	} {
		b.exec(sql)
	}
	check("with the plans of new tables", 2000)
	b.exec("analyze")
	for range 10 {
		check("in large tables", 2000)
	}
}
