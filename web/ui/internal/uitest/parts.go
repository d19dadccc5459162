package uitest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// SeedDivided adds a video whose transcode is divided into n parts to a seeded database. The first third is completed, of
// which every twentieth failed once. Then three run on both workers, one is retried, and the others wait. With isDead one
// part is dead, and the open ones are cancelled.
func SeedDivided(t testing.TB, pool *pgxpool.Pool, workers []store.ID, source string, n int, isDead bool) store.ID {
	t.Helper()
	s := &seeder{t: t, pool: pool, now: time.Now().Truncate(ms), n: uint32(10_000 + n), workers: workers}
	s.running = make(map[store.ID][]store.Running)
	s.exec(`alter table tasks disable trigger user`)
	task := s.add(video{
		source: source, age: 16 * time.Minute,
		stages: partlyDone(1, "film.mkv", 3600, stage{status: pending}, completedMetadata()),
	})
	start := s.now.Add(-15 * time.Minute)
	s.exec(`insert into attempts (task_id, token, stage, attempt, worker_id, started_at, finished_at, outcome)
		values ($1, $2, 'transcode', 1, $3, $4, $4::timestamptz + interval '40 ms', 'divided')`,
		task, s.id(start), workers[0], start)
	var rows pgx.Batch
	open, status, step := 0, store.StatusDivided, "divided"
	if isDead {
		status, step = dead, "stopped"
	}
	for part := 1; part <= n; part++ {
		if !s.addPart(&rows, task, part, n, start, isDead) {
			open++
		}
	}
	rows.Queue(`update tasks set transcode_status = $2 where id = $1`, task, status)
	rows.Queue(`update steps set status = $2, parts = $3, open_parts = $4
		where task_id = $1 and stage = 'transcode' and part = 0`,
		task, step, n, open)
	if err := pool.SendBatch(context.Background(), &rows).Close(); err != nil {
		t.Fatal(err)
	}
	s.exec(`alter table tasks enable trigger user`)
	s.reportRunning()
	return task
}

// reportRunning adds what the workers run to what they have reported before.
func (s *seeder) reportRunning() {
	s.t.Helper()
	st := store.New(s.pool, store.Video())
	all, err := st.Workers(context.Background(), false)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, w := range all {
		request := engine.HeartbeatRequest{Worker: w.ID, Running: append(w.Running, s.running[w.ID]...)}
		if _, err := engine.New(s.pool, st.Graph()).Heartbeat(context.Background(), request); err != nil {
			s.t.Fatal(err)
		}
	}
}

// addPart adds a part with its attempts, and reports whether it is completed.
func (s *seeder) addPart(rows *pgx.Batch, task store.ID, part, parts int, start time.Time, isDead bool) bool {
	s.t.Helper()
	worker, third := s.workers[part%2], parts/3
	insert := func(attempt int, from time.Time, took time.Duration, outcome string, class, failure any) {
		rows.Queue(`insert into attempts (task_id, token, stage, part, attempt, worker_id, started_at, finished_at, outcome, error_class, error)
			values ($1, $2, 'transcode', $3, $4, $5, $6, $7, $8, $9, $10)`,
			task, s.id(from), part, attempt, worker, from, from.Add(took), outcome, class, failure)
	}
	status, attempts, readyAt := "ready", 0, start
	var token, lockedBy *store.ID
	var lockedAt, runAt *time.Time
	const failure = "ffmpeg ended with exit code 187: Input/output error\n[hls @ 0x55d0c8a3b1c0] Opening 'seg-00012.m4s' for writing"
	switch {
	case part <= third:
		status, attempts = "completed", 1
		at := start.Add(time.Duration(part/2) * 14 * time.Minute / time.Duration(max(third/2, 1)))
		took := 13 * time.Minute / time.Duration(max(third/2, 1))
		if part%20 == 0 {
			insert(1, at, took/2, "failed", "error", failure)
			at, attempts = at.Add(took/2), 2
		}
		insert(attempts, at, took, "completed", nil, nil)
		readyAt = at
	case part <= third+3 && !isDead:
		status, attempts = "running", 1
		at, id := s.now.Add(-12*second), s.id(s.now)
		token, lockedBy, lockedAt = &id, &worker, &at
		s.running[worker] = append(s.running[worker], store.Running{
			Task: task, Stage: "transcode", Part: part, Parts: parts, Token: id, Attempt: 1,
			Percent: float64(20 * (part - third)), Speed: 1.5, ETA: 20,
		})
	case part == third+4:
		status, attempts = "waiting", 2
		at := s.now.Add(45 * second)
		runAt = &at
		if isDead {
			status, attempts, runAt = "stopped", 3, nil
		}
		for n := range attempts {
			insert(n+1, s.now.Add(time.Duration(n-5)*20*second), 9*second, "failed", "error", failure)
		}
	case isDead:
		status = "stopped"
	}
	rows.Queue(`insert into steps (task_id, stage, part, rank, turn, status, attempts, ready_at, token, locked_at, locked_by,
			run_at)
		values ($1, 'transcode', $2::int, 0, $2::int, $3, $4, $5, $6, $7, $8, $9)`,
		task, part, status, attempts, readyAt, token, lockedAt, lockedBy, runAt)
	return status == "completed"
}
