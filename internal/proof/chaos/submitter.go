package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/store"
)

const (
	concurrentSubmissions = 4
	tasksPerSecond        = 28 // on average
	submitTimeout         = 5 * time.Second
	submittingUsers       = 5 // of a third of the tasks
)

// submitter submits tasks and records which were acknowledged.
type submitter struct {
	pool *pgxpool.Pool
	// placesRemotely makes some tasks require a remote worker. It is set before run.
	placesRemotely bool

	mu           sync.Mutex
	rand         *rand.Rand
	submissions  map[string]store.Submission // by request id
	named        int                         // tasks, including those that were rolled back
	submitted    int                         // tasks, without them
	acknowledged map[string]store.ID         // by request id
	repeated     int                         // submissions that took more than one try
	rolledBack   []string                    // request ids

	longUntil atomic.Pointer[time.Time] // some tasks take longer than a lease until then; nil: none

	last   time.Time     // acknowledgement
	outage time.Duration // the longest between two acknowledgements
}

func newSubmitter(ctx context.Context, address string, seed uint64) (*submitter, error) {
	pool, err := connect(ctx, address)
	if err != nil {
		return nil, err
	}
	return &submitter{
		pool: pool,
		rand: rand.New(rand.NewPCG(seed, 1)), acknowledged: make(map[string]store.ID),
		submissions: make(map[string]store.Submission),
	}, nil
}

// run submits until submitting is done, and then repeats what was not acknowledged until ctx is
// done.
func (s *submitter) run(ctx, submitting context.Context) {
	var running sync.WaitGroup
	for range concurrentSubmissions {
		running.Go(func() {
			for submitting.Err() == nil {
				tasks, isRolledBack := s.next()
				if isRolledBack {
					s.submitAndRollBack(ctx, tasks)
				} else {
					s.submit(ctx, tasks)
				}
				interval := concurrentSubmissions * time.Second / tasksPerSecond
				_ = ctxsleep.For(submitting, time.Duration(len(tasks))*interval) // the loop sees that it is done
			}
		})
	}
	running.Wait()
}

// next draws the tasks of the next submission, and whether to roll it back.
func (s *submitter) next() (tasks []store.Submission, isRolledBack bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 1
	switch chance := s.rand.IntN(100); {
	case chance < 12:
		n, isRolledBack = 1+s.rand.IntN(3), true
	case chance < 30:
		n = 2 + s.rand.IntN(9)
	}
	for range n {
		s.named++
		task := store.Submission{RequestID: fmt.Sprintf("task-%06d", s.named)}
		if isRolledBack {
			task.RequestID = "rolled-back-" + task.RequestID
			s.rolledBack = append(s.rolledBack, task.RequestID)
		}
		if until := s.longUntil.Load(); !isRolledBack && until != nil && time.Now().Before(*until) && s.rand.IntN(50) == 0 {
			task.RequestID, task.Priority = longSource+"-"+task.RequestID, 10
		}
		task.Source = task.RequestID
		switch s.rand.IntN(20) {
		case 0:
			task.Priority = int16(s.rand.IntN(5) - 2)
		case 1:
			task.NotBefore = time.Now().Add(time.Duration(s.rand.IntN(3000)) * ms)
		case 2, 3, 4, 5:
			task.Placement = s.placement()
		}
		if n := s.rand.IntN(3 * submittingUsers); n < submittingUsers {
			task.UserID = fmt.Sprintf("user-%d", n+1)
		}
		tasks = append(tasks, task)
	}
	for i := range tasks {
		if s.rand.IntN(4) == 0 {
			tasks[i].UserContext = fmt.Appendf(nil, `{"of": %q,  "odd spaces": 1.0}`, tasks[i].RequestID)
		}
		s.submissions[tasks[i].RequestID] = tasks[i]
	}
	if !isRolledBack {
		s.submitted += n
	}
	return tasks, isRolledBack
}

// remoteLabel is what remote workers offer, and the others do not. The workers with the database are
// nearer to it and take most of the other tasks.
const remoteLabel = "remote"

// placement is that of a task whose transcode stage a remote worker must do.
func (s *submitter) placement() map[string]store.Placement {
	if !s.placesRemotely {
		return nil
	}
	return map[string]store.Placement{"transcode": {Requires: []string{remoteLabel}}}
}

// submit repeats a submission until it is acknowledged. A try without an answer may have created
// the tasks or not; their request ids make a repetition harmless.
func (s *submitter) submit(ctx context.Context, tasks []store.Submission) {
	for try := 0; ctx.Err() == nil; try++ {
		tryCtx, cancel := context.WithTimeout(ctx, submitTimeout)
		ids, err := s.submitOnce(tryCtx, s.pool, tasks)
		cancel()
		if err == nil {
			s.acknowledge(tasks, ids, try)
			return
		}
		_ = ctxsleep.For(ctx, 50*ms) // the loop sees that ctx is done
	}
}

// submitOnce submits tasks in one try, and returns their ids. It submits some of them with SQL, in every try.
func (s *submitter) submitOnce(ctx context.Context, db store.DB, tasks []store.Submission) (ids []store.ID, err error) {
	if sourceHash(tasks[0].RequestID)%4 == 0 {
		return submitWithSQL(ctx, db, tasks)
	}
	receipts, err := store.New(db, graph()).SubmitAll(ctx, tasks)
	for _, r := range receipts {
		ids = append(ids, r.ID)
	}
	return ids, err
}

const submitSQL = `
with added as (
  insert into chaos_tasks (request_id, source, priority, scheduled_at, placement, user_id, user_context)
  values ($1, $2, $3, $4, $5::text::jsonb, nullif($6, ''), $7::text::json)
      on conflict do nothing
  returning id
)
select id from added
 union all
select id from chaos_tasks where request_id = $1`

// submitWithSQL submits tasks with SQL, as other programs do, and returns their ids.
func submitWithSQL(ctx context.Context, db store.DB, tasks []store.Submission) (ids []store.ID, err error) {
	for _, t := range tasks {
		var scheduled *time.Time
		var placement, userContext *string
		if !t.NotBefore.IsZero() {
			scheduled = &t.NotBefore
		}
		if t.UserContext != nil {
			userContext = new(string(t.UserContext))
		}
		if t.Placement != nil {
			text, err := json.Marshal(t.Placement)
			if err != nil {
				return nil, err
			}
			placement = new(string(text))
		}
		rows, err := db.Query(ctx, submitSQL, t.RequestID, t.Source, t.Priority, scheduled, placement, t.UserID, userContext)
		if err != nil {
			return nil, err
		}
		id, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[store.ID]) // none if another try has just committed it
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func (s *submitter) acknowledge(tasks []store.Submission, ids []store.ID, try int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, id := range ids {
		s.acknowledged[tasks[i].RequestID] = id
	}
	s.repeated += min(try, 1)
	now := time.Now()
	if !s.last.IsZero() {
		s.outage = max(s.outage, now.Sub(s.last))
	}
	s.last = now
}

// acknowledgedTasks returns the tasks whose submissions are acknowledged.
func (s *submitter) acknowledgedTasks() map[store.ID]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	tasks := make(map[store.ID]bool)
	for _, id := range s.acknowledged {
		tasks[id] = true
	}
	return tasks
}

var errRollBack = errors.New("the submission is rolled back on purpose")

func (s *submitter) submitAndRollBack(ctx context.Context, tasks []store.Submission) {
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	_ = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		_, err := s.submitOnce(ctx, tx, tasks)
		return errors.Join(errRollBack, err)
	}) // it always returns an error
}
