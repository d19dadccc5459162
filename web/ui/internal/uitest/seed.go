package uitest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/store"
)

// Seeded has the ids of the seeded tasks and workers. Each field is one task in that state.
type Seeded struct {
	Published, Running, Retrying, Dead, Waiting, Replaced, Replacement, Cancelled store.ID
	Workers                                                                       []store.ID
	All                                                                           []store.ID
}

// durations are how long a stage was ready and how long its attempt took.
type durations struct{ wait, work time.Duration }

type video struct {
	source, user string
	age          time.Duration
	stages       [5]stage // in the order of the pipeline
	over         store.ID
}

// stage is the history of a stage of a video.
type stage struct {
	status store.Status
	failed []string // errors of the failed attempts
	class  string
	took   durations
	result any
	at     float64 // percent, if in progress
	note   string
}

type seeder struct {
	t       testing.TB
	pool    *pgxpool.Pool
	now     time.Time
	n       uint32
	workers []store.ID
	running map[store.ID][]store.Running
}

// stageNames are the stages of the video pipeline.
var stageNames = store.Video().Stages()

// id returns an id that sorts by its time. All other bits are the same in each run.
func (s *seeder) id(at time.Time) (id store.ID) {
	s.n++
	binary.BigEndian.PutUint64(id[:], uint64(at.UnixMilli())<<16)
	id[6], id[8] = 0x70, 0x80
	binary.BigEndian.PutUint32(id[12:], s.n*2654435761)
	return id
}

func (s *seeder) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.pool.Exec(context.Background(), sql, args...); err != nil {
		s.t.Fatalf("%v\n%s", err, sql)
	}
}

func (s *seeder) add(f video) store.ID {
	s.t.Helper()
	created := s.now.Add(-f.age)
	id := s.id(created)
	type column struct {
		attempts int
		token    *store.ID
		at       *time.Time
		by       *store.ID
		runAt    *time.Time
	}
	var columns [5]column
	ends := [5]time.Time{}
	for i, st := range f.stages {
		ready := created
		for _, need := range [][]int{nil, {0}, {0}, {1, 2}, {3}}[i] {
			if ends[need].After(ready) {
				ready = ends[need]
			}
		}
		started := ready.Add(st.took.wait)
		worker := s.workers[int(s.n)%len(s.workers)]
		for n, err := range st.failed {
			end := started.Add(st.took.work)
			retry := end.Add(20 * time.Second)
			if n == len(st.failed)-1 && st.status == store.StatusFailed {
				retry = s.now.Add(90 * time.Second)
				columns[i].runAt = &retry
			}
			s.exec(`insert into attempts (task_id, token, stage, attempt, worker_id, started_at, finished_at,
					outcome, retry_at, error_class, error)
				values ($1, $2, $3, $4, $5, $6, $7, 'failed', $8, $9, $10)`,
				id, s.id(started), stageNames[i], n+1, worker, started, end, retry, st.class, err)
			started = retry.Add(st.took.wait)
			columns[i].attempts = n + 1
		}
		ends[i] = started
		switch st.status {
		case store.StatusCompleted:
			columns[i].attempts++
			ends[i] = started.Add(st.took.work)
			result, err := json.Marshal(st.result)
			if err != nil {
				s.t.Fatal(err)
			}
			s.exec(`insert into attempts (task_id, token, stage, attempt, worker_id, started_at, finished_at, outcome, result)
				values ($1, $2, $3, $4, $5, $6, $7, 'completed', $8::text::jsonb)`,
				id, s.id(started), stageNames[i], columns[i].attempts, worker, started, ends[i], string(result))
		case store.StatusInProgress:
			token := s.id(started)
			columns[i].attempts++
			columns[i].token, columns[i].at, columns[i].by = &token, &started, &worker
			eta, speed := s.now.Sub(started).Seconds()*(100-st.at)/max(st.at, 1), 1.56
			if st.at < 0 {
				eta, speed = 0, 0
			}
			s.running[worker] = append(s.running[worker], store.Running{
				Task: id, Stage: stageNames[i], Token: token, Attempt: columns[i].attempts, Percent: st.at,
				Speed: speed, ETA: eta, Note: st.note,
			})
		}
	}
	sql := `insert into tasks (id, created_at, source, user_id, overridden_by`
	values := `) values ($1, $2, $3, nullif($4, ''), $5`
	args := []any{id, created, f.source, f.user, f.over}
	for i, c := range columns {
		for _, col := range []struct {
			name  string
			value any
		}{
			{"status", f.stages[i].status}, {"attempts", c.attempts}, {"token", c.token}, {"locked_at", c.at},
			{"locked_by", c.by}, {"run_at", c.runAt},
		} {
			args = append(args, col.value)
			sql += ", " + stageNames[i] + "_" + col.name
			values += fmt.Sprintf(", $%d", len(args))
		}
	}
	s.exec(sql+values+")", args...)
	return id
}
