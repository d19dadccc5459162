package uitest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/store"
)

// Seeded has the ids of the seeded tasks and workers. Each field is one task in that state.
type Seeded struct {
	Deleted                                                                       store.ID
	Published, Running, Retrying, Dead, Waiting, Replaced, Replacement, Cancelled store.ID
	Workers                                                                       []store.ID   // a local and a remote one
	Keys                                                                          []access.Key // busy, offline, disabled
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

// step is the open work of a stage of a task.
type step struct {
	attempts          int
	readyAt           time.Time
	token, lockedBy   *store.ID
	lockedAt, retryAt *time.Time
}

// add inserts a task with its history.
func (s *seeder) add(f video) store.ID {
	s.t.Helper()
	created := s.now.Add(-f.age)
	id := s.id(created)
	var steps [5]step
	var ends [5]time.Time
	for i, st := range f.stages {
		ready := created
		for _, need := range [][]int{nil, {0}, {0}, {1, 2}, {3}}[i] {
			if ends[need].After(ready) {
				ready = ends[need]
			}
		}
		steps[i], ends[i] = s.addAttempts(id, stageNames[i], st, ready.Add(st.took.wait))
		steps[i].readyAt = ready
	}
	s.addTask(id, created, f, steps)
	return id
}

// addAttempts inserts the attempts of a stage, of which the first one starts at a time. It returns when the last one
// ends.
func (s *seeder) addAttempts(task store.ID, name string, st stage, start time.Time) (c step, end time.Time) {
	s.t.Helper()
	worker := s.workers[int(s.n)%len(s.workers)]
	insert := func(end time.Time, outcome string, retryAt *time.Time, class, failure, result any) {
		c.attempts++
		s.exec(`insert into attempts (task_id, token, stage, attempt, worker_id, started_at, finished_at,
				outcome, retry_at, error_class, error, result)
			values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12::text::jsonb)`,
			task, s.id(start), name, c.attempts, worker, start, end, outcome, retryAt, class, failure, result)
	}
	for n, failure := range st.failed {
		end := start.Add(st.took.work)
		retry := end.Add(20 * time.Second)
		if n == len(st.failed)-1 && st.status == store.StatusFailed {
			retry = s.now.Add(90 * time.Second)
			c.retryAt = &retry
		}
		insert(end, "failed", &retry, st.class, failure, nil)
		start = retry.Add(st.took.wait)
	}
	switch st.status {
	case store.StatusCompleted:
		result, err := json.Marshal(st.result)
		if err != nil {
			s.t.Fatal(err)
		}
		end = start.Add(st.took.work)
		insert(end, "completed", nil, nil, nil, string(result))
		return c, end
	case store.StatusInProgress:
		token := s.id(start)
		c.attempts++
		c.token, c.lockedAt, c.lockedBy = &token, &start, &worker
		r := store.Running{Task: task, Stage: name, Token: token, Attempt: c.attempts, Percent: st.at, Note: st.note}
		if st.at >= 0 {
			r.ETA, r.Speed = s.now.Sub(start).Seconds()*(100-st.at)/max(st.at, 1), 1.56
		}
		s.running[worker] = append(s.running[worker], r)
	}
	return c, start
}

// addTask inserts a task and the steps of its stages that are open.
func (s *seeder) addTask(id store.ID, created time.Time, f video, steps [5]step) {
	s.t.Helper()
	s.exec(`insert into tasks (id, created_at, source, user_id, overridden_by, ingest_status, transcode_status, metadata_status,
			assemble_status, publish_status)
		values ($1, $2, $3, nullif($4, ''), $5, $6, $7, $8, $9, $10)`, id, created, f.source, f.user, f.over,
		f.stages[0].status, f.stages[1].status, f.stages[2].status, f.stages[3].status, f.stages[4].status)
	graph := store.Video()
	for i, c := range steps {
		isBlocked := slices.ContainsFunc(graph.Needs(i), func(need int) bool { return f.stages[need].status != completed })
		status := map[store.Status]string{pending: "ready", failed: "ready", inprogress: "running"}[f.stages[i].status]
		if c.retryAt != nil {
			status = "waiting"
		}
		if status != "" && !isBlocked {
			s.exec(`insert into steps (task_id, stage, status, rank, turn, attempts, ready_at, run_at, token, locked_at, locked_by)
				values ($1, $2, $3, 0, 0, $4, $5, $6, $7, $8, $9)`,
				id, stageNames[i], status, c.attempts, c.readyAt, c.retryAt, c.token, c.lockedAt, c.lockedBy)
		}
	}
}
