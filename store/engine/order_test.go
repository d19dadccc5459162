package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
)

// The tests of this file let one worker do a backlog in logical time: each unit of work, a part or a stage, takes one of
// its slots for one round. They check in which order users and tasks are served.

// orderRun is a database, and a worker whose slots are used in rounds.
type orderRun struct {
	t      *testing.T
	pool   *pgxpool.Pool
	store  *store.Store
	engine *Engine
	worker store.ID
	listen *pgx.Conn

	unitQueue int // the queue whose claims take a slot for a round; those of other queues take no time
	slots     int
	after     []Position
	paused    []int
	parts     map[store.ID]int // into how many the task is divided

	running []Claim
	started []Claim          // units, in order
	done    map[store.ID]int // tasks whose last stage is completed: after how many started units
	order   []store.ID       // of done
}

// newOrderRun makes a run of a pipeline whose stage encode is divided into parts, or not.
func newOrderRun(t *testing.T, divides bool, slots int) *orderRun {
	t.Helper()
	nodes := []store.Node{
		{Name: "fetch"}, {Name: "encode", Needs: []string{"fetch"}, Divides: true}, {Name: "publish", Needs: []string{"encode"}},
	}
	unitStage := 1
	if !divides {
		nodes, unitStage = []store.Node{{Name: "encode"}, {Name: "publish", Needs: []string{"encode"}}}, 0
	}
	g, err := store.NewGraph("film", nodes...)
	if err != nil {
		t.Fatal(err)
	}
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	r := &orderRun{
		t: t, pool: pool, store: store.New(pool, g), engine: New(pool, g), unitQueue: g.WorkQueue(unitStage), slots: slots,
		after: make([]Position, g.Queues()), parts: make(map[store.ID]int), done: make(map[store.ID]int),
	}
	r.worker, err = r.engine.RegisterWorker(t.Context(), store.Worker{Host: "test", PID: 1})
	r.must(err)
	r.listen, err = pgx.Connect(t.Context(), pool.Config().ConnString())
	r.must(err)
	t.Cleanup(func() { r.listen.Close(context.Background()) })
	for _, stage := range g.Stages() {
		_, err = r.listen.Exec(t.Context(), "listen "+g.Channel(stage))
		r.must(err)
	}
	if _, err = r.listen.Exec(t.Context(), "listen flush"); err != nil {
		r.must(err)
	}
	return r
}

func (r *orderRun) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *orderRun) exec(sql string, args ...any) {
	r.t.Helper()
	_, err := r.pool.Exec(r.t.Context(), sql, args...)
	r.must(err)
}

// submit submits n tasks of a user, which are divided into parts.
func (r *orderRun) submit(n int, user string, parts int) (ids []store.ID) {
	r.t.Helper()
	subs := make([]store.Submission, n)
	for i := range subs {
		subs[i] = store.Submission{Source: "a", UserID: user}
	}
	receipts, err := r.store.SubmitAll(r.t.Context(), subs)
	r.must(err)
	for _, receipt := range receipts {
		ids = append(ids, receipt.ID)
		r.parts[receipt.ID] = parts
	}
	return ids
}

// begin fills the free slots.
func (r *orderRun) begin(reports ...Report) {
	r.t.Helper()
	for again := true; again || len(reports) > 0; {
		r.readNotifications()
		in := ExchangeRequest{
			Worker: r.worker, Reports: reports, FreeSlots: make([]int, len(r.after)), ClaimFrom: make([]bool, len(r.after)),
			After: r.after, PromoteDue: true,
		}
		for queue := range in.FreeSlots {
			in.FreeSlots[queue], in.ClaimFrom[queue] = 2, !slices.Contains(r.paused, queue)
		}
		in.FreeSlots[r.unitQueue] = r.slots - len(r.running)
		in.ClaimFrom[r.unitQueue] = in.FreeSlots[r.unitQueue] > 0
		r.engine.positions.written = time.Time{} // a round is longer than the time between two writes
		out, err := r.engine.Exchange(r.t.Context(), in)
		r.must(err)
		if len(out.Stale)+len(out.Locked) > 0 {
			r.t.Fatalf("stale reports %+v, locked %+v", out.Stale, out.Locked)
		}
		r.after = out.Next
		reports, again = nil, len(out.Claims) > 0
		for _, c := range out.Claims {
			if report, ok := r.claimed(c); ok {
				reports = append(reports, report)
			}
		}
	}
}

// claimed starts a unit, or returns the report of a claim that takes no time.
func (r *orderRun) claimed(c Claim) (Report, bool) {
	report := Report{Task: c.Task, Stage: c.Stage, Part: c.Part, Token: c.Token, Outcome: Completed}
	switch {
	case r.engine.graph.Queue(c.Stage, c.Part > 0) == r.unitQueue:
		r.running, r.started = append(r.running, c), append(r.started, c)
		return Report{}, false
	case r.engine.graph.Divides(c.Stage) && c.Parts == 0:
		report.Outcome = Divided
		for range r.parts[c.Task] {
			report.Parts = append(report.Parts, nil)
		}
	case len(r.engine.graph.Feeds(c.Stage)) == 0:
		r.done[c.Task] = len(r.started)
		r.order = append(r.order, c.Task)
	}
	return report, true
}

// readNotifications looks from the steps that notifications name, if those come before.
func (r *orderRun) readNotifications() {
	r.t.Helper()
	r.exec("notify flush")
	for {
		n, err := r.listen.WaitForNotification(r.t.Context())
		r.must(err)
		if n.Channel == "flush" {
			return
		}
		p, ok := ParseStep(n.Payload)
		for queue := range r.after {
			stage, _ := r.engine.graph.QueueStage(queue)
			if r.engine.graph.Channel(r.engine.stages[stage]) != n.Channel {
				continue
			}
			if !ok {
				p = Position{}
			} else {
				p = p.Before()
			}
			if p.Compare(r.after[queue]) < 0 {
				r.after[queue] = p
			}
		}
	}
}

// rounds completes what runs, and fills the slots, n times.
func (r *orderRun) rounds(n int) {
	r.t.Helper()
	for range n {
		var reports []Report
		for _, c := range r.running {
			reports = append(reports, Report{Task: c.Task, Stage: c.Stage, Part: c.Part, Token: c.Token, Outcome: Completed})
		}
		r.running = nil
		r.begin(reports...)
	}
}

// finish does rounds until nothing runs.
func (r *orderRun) finish() {
	r.t.Helper()
	for r.begin(); len(r.running) > 0; {
		r.rounds(1)
	}
}

// roundsUntil does rounds until a unit of the task has started, and returns their number.
func (r *orderRun) roundsUntil(task store.ID) (n int) {
	r.t.Helper()
	before := len(r.started)
	for r.begin(); ; {
		for _, c := range r.started[before:] {
			if c.Task == task {
				return n
			}
		}
		if len(r.running) == 0 {
			r.t.Fatal("the task does not begin")
		}
		before = len(r.started)
		r.rounds(1)
		n++
	}
}

func TestOrder_ClipBehindAFilmBeginsWithinTwoChunks(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{1, 4} {
		for _, film := range []int{60, 240} {
			for _, clip := range []int{1, 4} {
				for _, user := range []string{"", "anna"} {
					t.Run(fmt.Sprintf("%d slots, film of %d, clip of %d, user %q", slots, film, clip, user), func(t *testing.T) {
						t.Parallel()
						r := newOrderRun(t, true, slots)
						r.submit(2, user, film)
						r.begin()
						r.rounds(film / slots / 3)
						if n := r.roundsUntil(r.submit(1, user, clip)[0]); n > 2 {
							t.Errorf("the clip began after %d chunks per slot", n)
						}
					})
				}
			}
		}
	}
}

func TestOrder_BacklogIsFinishedTaskByTask(t *testing.T) {
	t.Parallel()
	const tasks = 10
	for _, slots := range []int{1, 3} {
		for _, parts := range []int{4, 60} {
			t.Run(fmt.Sprintf("%d slots, %d parts", slots, parts), func(t *testing.T) {
				t.Parallel()
				r := newOrderRun(t, true, slots)
				ids := r.submit(tasks, "anna", parts)
				r.finish()
				for i, id := range ids {
					if at, ideal := r.done[id], (i+1)*parts; at > ideal+parts/4+2*slots {
						t.Errorf("task %d was done after %d of %d parts", i+1, at, tasks*parts)
					}
				}
			})
		}
	}
}

func TestOrder_UsersWithBacklogsTakeTurns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		divides    bool
		anna, max  []int // the parts of their tasks
		slots      int
		annaRounds int // before max submits
	}{
		"undivided":                  {false, repeat(60, 0), repeat(60, 0), 1, 0},
		"undivided on three slots":   {false, repeat(60, 0), repeat(60, 0), 3, 0},
		"undivided, one comes later": {false, repeat(60, 0), repeat(60, 0), 1, 20},
		"films against films":        {true, repeat(3, 60), repeat(3, 60), 1, 0},
		"films, one comes later":     {true, repeat(3, 60), repeat(3, 60), 1, 50},
		"clips against clips":        {true, repeat(30, 4), repeat(30, 4), 1, 0},
		"films against clips":        {true, repeat(2, 60), repeat(30, 4), 1, 0},
		"long films against films":   {true, repeat(1, 240), repeat(4, 60), 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newOrderRun(t, c.divides, c.slots)
			for _, parts := range c.anna {
				r.submit(1, "anna", parts)
			}
			r.begin()
			r.rounds(c.annaRounds)
			from := len(r.started)
			for _, parts := range c.max {
				r.submit(1, "max", parts)
			}
			r.finish()
			r.wantTurns(from, "anna", "max", c.slots)
		})
	}
}

func repeat(n, parts int) (all []int) {
	for range n {
		all = append(all, parts)
	}
	return all
}

// wantTurns compares how many units of two users have started, as long as both have some left.
func (r *orderRun) wantTurns(from int, a, b string, tolerance int) {
	r.t.Helper()
	left := map[string]int{}
	for _, c := range r.started[from:] {
		left[c.UserID]++
	}
	count, worst, at := map[string]int{}, 0, 0
	for i, c := range r.started[from:] {
		count[c.UserID]++
		left[c.UserID]--
		if difference := max(count[a]-count[b], count[b]-count[a]); difference > worst {
			worst, at = difference, i+1
		}
		if left[a] == 0 || left[b] == 0 {
			break
		}
	}
	if worst > tolerance {
		r.t.Errorf("of the first %d units, the users' shares differ by %d", at, worst)
	}
}

func TestOrder_SingleTaskWaitsForOneUnitPerCompetingUser(t *testing.T) {
	t.Parallel()
	for _, divides := range []bool{false, true} {
		for _, parts := range []int{4, 60} {
			t.Run(fmt.Sprintf("divided %t into %d", divides, parts), func(t *testing.T) {
				t.Parallel()
				r := newOrderRun(t, divides, 1)
				users := []string{"a", "m", "z"}
				for _, user := range users {
					r.submit(20, user, parts)
				}
				r.begin()
				r.rounds(17)
				for _, single := range []string{"b", "y", ""} {
					if n := r.roundsUntil(r.submit(1, single, parts)[0]); n > len(users)+1 {
						t.Errorf("the task of %q began after %d units, with %d competing users", single, n, len(users))
					}
					users = append(users, single)
				}
			})
		}
	}
}

// Joins and publishing have the turns of their user, not those of the parts.
func TestOrder_UserOfALongFilmKeepsTheTurns(t *testing.T) {
	t.Parallel()
	r := newOrderRun(t, true, 4)
	const fetch, publish = 0, 2
	r.submit(1, "anna", 240)
	r.begin()
	r.paused = []int{fetch, publish}
	r.submit(50, "max", 1)
	r.finish()
	id := r.submit(1, "anna", 1)[0]
	var ahead int
	r.must(r.pool.QueryRow(t.Context(), `select count(*) from film_steps s join film_steps own on own.task_id = $1
		where s.stage = 'fetch' and s.user_id = 'max' and (s.turn, s.task_id) < (own.turn, own.task_id)`, id).Scan(&ahead))
	if ahead > 3 {
		t.Errorf("after her film of 240 parts, %d tasks of max come before anna's next one", ahead)
	}
}

func TestOrder_ClipsOnOneSlotAreDoneInOrder(t *testing.T) {
	t.Parallel()
	for _, divides := range []bool{false, true} {
		r := newOrderRun(t, divides, 1)
		ids := append(r.submit(2, "", 4), r.submit(2, "", 4)...)
		r.finish()
		for i, id := range r.order {
			if id != ids[i] {
				t.Errorf("divided %t: task %d was done at place %d", divides, slices.Index(ids, id)+1, i+1)
			}
		}
	}
}

func TestOrder_ScheduledTasksAndRetriesHoldNobodyBack(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(r *orderRun){
		"tasks scheduled far ahead": func(r *orderRun) {
			_, err := r.store.SubmitAll(r.t.Context(), scheduled(200, "anna", time.Now().Add(1000*time.Hour)))
			r.must(err)
		},
		"scheduled tasks that are due": func(r *orderRun) {
			_, err := r.store.SubmitAll(r.t.Context(), scheduled(200, "anna", time.Now().Add(1000*time.Hour)))
			r.must(err)
			r.exec("update film_steps set run_at = now() - interval '1 s' where status = 'waiting'")
		},
		"a retry of 5,000 old tasks": func(r *orderRun) {
			r.exec("update film_tasks set encode_status = 'dead' where user_id = 'old' and encode_status = 'pending'")
			r.exec("select cuelight_film_retry_tasks(array(select id from film_tasks where user_id = 'old'))")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newOrderRun(t, false, 1)
			r.exec("insert into film_tasks (source, user_id) select 'a', 'old' from generate_series(1, 5000)")
			if name != "a retry of 5,000 old tasks" {
				r.exec("delete from film_tasks")
			}
			r.submit(100, "max", 0)
			r.begin()
			r.rounds(20)
			before := r.submit(1, "zoe", 0)[0]
			prepare(r)
			if n := r.roundsUntil(before); n > 3 {
				t.Errorf("a task submitted before began after %d units", n)
			}
			r.rounds(3)
			if n := r.roundsUntil(r.submit(1, "zoe", 0)[0]); n > 3 {
				t.Errorf("a task submitted later began after %d units", n)
			}
			from := len(r.started)
			r.rounds(20)
			shares := map[string]int{}
			for _, c := range r.started[from:] {
				shares[c.UserID]++
			}
			if shares["max"] < 9 {
				t.Errorf("the shares are %v", shares)
			}
		})
	}
}

func scheduled(n int, user string, at time.Time) (all []store.Submission) {
	for range n {
		all = append(all, store.Submission{Source: "a", UserID: user, NotBefore: at})
	}
	return all
}
