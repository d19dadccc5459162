package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/store"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(workerEnv); address != "" {
		os.Exit(workerMain(address))
	}
	goleak.VerifyTestMain(m)
}

func TestNothingIsLostWhenTheStandbyTakesOver(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a quarter of a minute")
	}
	t.Parallel()
	for name, readOnly := range map[string]bool{
		"from a primary that was killed": false,
		"from one that refuses to write": true,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			sum, err := run(t.Context(), plan{
				load: 7 * time.Second, before: 2 * time.Second, away: time.Second,
				workers: 2, rate: 40, readOnly: readOnly,
			}, &out)
			if errors.Is(err, postgres.ErrNotInstalled) && os.Getenv("CI") == "" {
				t.Skip(err)
			}
			if err != nil || !sum.good() {
				t.Errorf("%+v, %v\n%s", sum, err, &out)
			}
			t.Logf("%+v", sum)
		})
	}
}

// completed is a task that went through all stages.
const completed = `
with task as (
  insert into failover_tasks (source, request_id, ingest_status, transcode_status, metadata_status, assemble_status, publish_status,
                              ingest_attempts, transcode_attempts, metadata_attempts, assemble_attempts, publish_attempts)
  values ('x', $1, 'completed', 'completed', 'completed', 'completed', 'completed', 1, 1, 1, 1, 1)
  returning id
), history as (
  insert into failover_attempts (task_id, token, stage, attempt, worker_id, started_at, finished_at, outcome)
  select id, gen_random_uuid(), stage, 1, gen_random_uuid(), now() + n * interval '2 ms', now() + n * interval '2 ms' + interval '1 ms', 'completed'
    from task, unnest(array['ingest', 'transcode', 'metadata', 'assemble', 'publish']) with ordinality as stages (stage, n)
)
select id from task`

const again = `
insert into failover_attempts (task_id, token, stage, attempt, worker_id, started_at, outcome)
select id, gen_random_uuid(), 'metadata', 2, gen_random_uuid(), now(), 'completed'
  from failover_tasks where request_id = $1`

func TestWhatIsLostOrDoneTwiceIsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil string // what is done to the task of request "a"
		want  summary
	}{
		"nothing":          {"select $1", summary{Completed: 2}},
		"a lost task":      {"with h as (delete from failover_attempts) delete from failover_tasks where request_id = $1", summary{Completed: 1, Lost: 2, Violations: 1}},
		"an open stage":    {"update failover_tasks set publish_status = 'pending' where request_id = $1", summary{Completed: 1, Lost: 1, Violations: 1}},
		"another task":     {"update failover_tasks set id = gen_random_uuid() where request_id = $1", summary{Completed: 2, Lost: 1, Violations: 1}},
		"a repeated stage": {again, summary{Completed: 2, Duplicated: 1, Violations: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t, pgtest.SQL(graph().SchemaSQL(), graph().TriggersSQL()))
			l := newLoad(nil, 1)
			for _, request := range []string{"a", "b"} {
				var id store.ID
				if err := pool.QueryRow(t.Context(), completed, request).Scan(&id); err != nil {
					t.Fatal(err)
				}
				l.acknowledged[request] = id
			}
			if _, err := pool.Exec(t.Context(), c.spoil, "a"); err != nil {
				t.Fatal(err)
			}
			var sum summary
			var out strings.Builder
			if err := inspect(t.Context(), progresslog.New(&out), pool, l, &sum); err != nil {
				t.Fatal(err)
			}
			sum.Violations = min(sum.Violations, 1) // how many there are is not for here
			if sum != c.want {
				t.Errorf("%+v, want %+v\n%s", sum, c.want, &out)
			}
		})
	}
}

func TestASummaryIsGoodOnlyIfNothingIsWrong(t *testing.T) {
	t.Parallel()
	good := summary{Submitted: 3, Acknowledged: 3, Completed: 3, OutageMS: 1}
	if !good.good() {
		t.Errorf("%+v", good)
	}
	for _, spoil := range []func(*summary){
		func(s *summary) { s.Lost = 1 },
		func(s *summary) { s.Duplicated = 1 },
		func(s *summary) { s.Violations = 1 },
		func(s *summary) { s.WorkersRestarted = 1 },
		func(s *summary) { s.Acknowledged = 2 },
		func(s *summary) { s.Completed = 2 },
		func(s *summary) { s.OutageMS = 0 },
		func(s *summary) { s.Submitted, s.Acknowledged, s.Completed = 0, 0, 0 },
	} {
		s := good
		if spoil(&s); s.good() {
			t.Errorf("%+v", s)
		}
	}
}
