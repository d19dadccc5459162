package engine

import (
	"slices"
	"testing"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
)

// dropRunning drops what runs of a task whose claims were revoked.
func (r *orderRun) dropRunning(task store.ID) {
	r.running = slices.DeleteFunc(r.running, func(c Claim) bool { return c.Task == task })
}

// A task that was away keeps neither a turn that has passed, nor gets one for all of its parts.
func TestOrder_FilmsThatComeBackHoldNobodyBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ leave, back string }{
		"cancelled and retried": {`select cuelight_film_cancel($1)`, `select cuelight_film_retry($1)`},
		"deleted and restored":  {`select cuelight_film_delete($1)`, `select cuelight_film_undelete($1)`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newOrderRun(t, true, 1)
			film := r.submit(1, "anna", 60)[0]
			r.begin()
			r.rounds(5)
			r.exec(c.leave, film)
			r.dropRunning(film)
			r.submit(4, "max", 60)
			r.begin()
			r.rounds(100)
			r.exec(c.back, film)
			if n := r.roundsUntil(r.submit(1, "zoe", 4)[0]); n > 3 {
				t.Errorf("a clip began after %d chunks", n)
			}
			from := len(r.started)
			r.rounds(60)
			r.wantTurns(from, "anna", "max", 4)
			r.finish()
			if r.done[film] == 0 {
				t.Error("the film is not done")
			}
		})
	}
}

func TestOrder_ATaskThatComesBackIsAnnounced(t *testing.T) {
	t.Parallel()
	r := newOrderRun(t, false, 1)
	task := r.submit(1, "anna", 0)[0]
	r.exec(`select cuelight_film_delete($1)`, task)
	r.submit(3, "max", 0)
	r.finish()
	r.exec(`select cuelight_film_undelete($1)`, task)
	if n := r.roundsUntil(task); n > 0 {
		t.Errorf("it began after %d units", n)
	}
}

// Turns of one priority mean nothing for another.
func TestOrder_TasksOfAnotherPriorityTakeTurns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, then int }{
		"early turns of a low one": {-1, 0}, "late turns of a high one": {0, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newOrderRun(t, false, 1)
			if c.before == 0 { // so that turns of priority 0 are late
				r.submit(100, "zoe", 0)
				r.begin()
				r.rounds(50)
				r.submit(60, "zoe", 0)
			}
			r.exec(`insert into film_tasks (source, user_id, priority) select 'a', 'max', $1 from generate_series(1, 100)`, c.then)
			r.begin()
			r.rounds(40)
			r.exec(`insert into film_tasks (source, user_id, priority) select 'a', 'anna', $1 from generate_series(1, 60)`, c.before)
			r.exec(`update film_tasks set priority = $1 where user_id = 'anna'`, c.then)
			from := len(r.started)
			r.begin()
			r.rounds(50)
			r.wantTurns(from, "anna", "max", 2)
		})
	}
}

func TestOrder_ReleasedTaskKeepsItsTurn(t *testing.T) {
	t.Parallel()
	r := newOrderRun(t, false, 1)
	ids := r.submit(50, "anna", 0)
	r.begin()
	c := r.running[0]
	r.running = nil
	r.begin(Report{Task: c.Task, Stage: c.Stage, Token: c.Token, Outcome: Released, RetryIn: 1e15})
	r.rounds(3)
	r.exec(`update film_steps set run_at = now() - interval '0.5 s' where task_id = $1`, ids[0])
	if n := r.roundsUntil(ids[0]); n > 2 {
		t.Errorf("after its wait it began after %d others of its user", n)
	}
}

// A task counts as one, and all of its stages may start.
func TestExchange_LimitOfAUserLetsStartedTasksGoOn(t *testing.T) {
	t.Parallel()
	g, err := store.NewGraph("film", store.Node{Name: "left"}, store.Node{Name: "right"},
		store.Node{Name: "end", Needs: []string{"left", "right"}})
	if err != nil {
		t.Fatal(err)
	}
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	st, e := store.New(pool, g), New(pool, g)
	worker, err := e.RegisterWorker(t.Context(), store.Worker{Host: "test", PID: 1})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := st.Submit(t.Context(), store.Submission{Source: "a", UserID: "anna"}); err != nil {
			t.Fatal(err)
		}
	}
	claim := func(slots ...int) (stages []int) {
		t.Helper()
		out, err := e.Exchange(t.Context(), ExchangeRequest{
			Worker: worker, FreeSlots: slots, ClaimFrom: []bool{true, true, false}, MaxRunningPerUser: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range out.Claims {
			stages = append(stages, c.Stage)
		}
		return stages
	}
	if stages := claim(3, 0, 0); !slices.Equal(stages, []int{0}) {
		t.Errorf("claimed stages %v, want the left one of one task", stages)
	}
	if stages := claim(3, 3, 0); !slices.Equal(stages, []int{1}) {
		t.Errorf("claimed stages %v, want the right one of the same task", stages)
	}
	if stages := claim(3, 3, 0); len(stages) > 0 {
		t.Errorf("claimed stages %v of a second task", stages)
	}
}
