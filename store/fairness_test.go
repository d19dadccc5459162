package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// submitMany submits n tasks of a user.
func (b bundle) submitMany(n int, user string, priority int16) {
	b.t.Helper()
	subs := make([]store.Submission, n)
	for i := range subs {
		subs[i] = store.Submission{Source: "a.mp4", UserID: user, Priority: priority}
	}
	_, err := b.SubmitAll(b.t.Context(), subs)
	must(b.t, err)
}

// claimUsers makes n exchanges that claim with some slots, and returns the users of the claims.
func (b bundle) claimUsers(w store.ID, n, slots, stage int) (users []string) {
	b.t.Helper()
	for range n {
		var some []string
		for _, c := range b.exchange(w, slots, nil, stage).Claims {
			some = append(some, c.UserID)
		}
		users = append(users, strings.Join(some, "+"))
	}
	return users
}

func TestExchange_StartsASingleTaskBehindManyOfAnotherUser(t *testing.T) {
	t.Parallel()
	for _, single := range []string{"anna", "zoe"} { // before and after the other in the order of turns
		b := setup(t)
		w := b.worker()
		b.submitMany(300, "max", 0)
		b.claimUsers(w, 5, 1, ingest)
		b.submitMany(1, single, 0)
		if got := b.claimUsers(w, 2, 1, ingest); !slices.Contains(got, single) {
			t.Errorf("%s's task is not among the next two claims, of %q", single, got)
		}
	}
}

func TestExchange_TakesTurnsBetweenUsers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submitMany(40, "max", 0)
	b.submitMany(40, "anna", 0)
	b.submitMany(40, "zoe", 0)
	if got := b.claimUsers(w, 1, 1, ingest); got[0] != "max" {
		t.Errorf("first claim is of %q, want max, the oldest", got)
	}
	want := []string{"anna", "zoe", "max", "anna", "zoe", "max"}
	if got := b.claimUsers(w, len(want), 1, ingest); !slices.Equal(got, want) {
		t.Errorf("claims of one slot are %q, want %q", got, want)
	}
	in := b.exchange(w, 6, nil, ingest)
	count := make(map[string]int)
	for _, c := range in.Claims {
		count[c.UserID]++
	}
	if count["max"] != 2 || count["anna"] != 2 || count["zoe"] != 2 {
		t.Errorf("claims of six slots are %v, want two of each", count)
	}
}

// The dispatcher lets claims go on after a position while many tasks are ready.
func TestExchange_TakesTurnsAfterAPosition(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submitMany(60, "max", 0)
	b.submitMany(30, "anna", 0)
	b.submitMany(60, "zoe", -1)
	b.submitMany(10, "", 0)
	b.claimUsers(w, 1, 1, ingest)
	claimed := make(map[store.ID]bool)
	var after engine.Position
	for n := 0; len(claimed) < 99; n++ {
		in := exchangeRequest(w, 6, nil, ingest)
		in.After = []engine.Position{ingest: after, publish: {}}
		out, err := b.Exchange(t.Context(), in)
		must(t, err)
		count := make(map[string]int)
		for _, c := range out.Claims {
			if claimed[c.Task] {
				t.Fatalf("task %s was claimed twice", c.Task)
			}
			claimed[c.Task] = true
			count[c.UserID]++
		}
		if n < 5 && (count["max"] != 2 || count["anna"] != 2 || count[""] != 2) ||
			n >= 5 && n < 11 && (count["max"] != 3 || count["anna"] != 3) {
			t.Errorf("claim %d is of %v, want as many of each user, and of none", n, count)
		}
		if count["zoe"] > 0 && len(claimed) < 99 {
			t.Fatalf("claim %d is of %v, before %d tasks with a higher priority", n, count, 99-len(claimed))
		}
		if after = out.Next[ingest]; after.IsStart() {
			t.Fatalf("claim %d has no last position", n)
		}
		if n == 40 {
			t.Fatalf("%d of 99 tasks were claimed", len(claimed))
		}
	}
}

func TestExchange_ServesManyUsersOneAfterTheOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	for i := range 60 {
		b.submitMany(2, fmt.Sprintf("user%02d", i), 0)
	}
	b.claimUsers(w, 1, 1, ingest)
	seen := make(map[string]bool)
	for range 4 {
		for _, c := range b.exchange(w, 25, nil, ingest).Claims {
			seen[c.UserID] = true
		}
	}
	if len(seen) < 55 {
		t.Errorf("after four claims, %d of 60 users have had a turn", len(seen))
	}
}

func TestExchange_GivesSlotsThatOneUserCannotFillToOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submitMany(21, "", 0)
	b.submitMany(2, "anna", 0)
	b.submitMany(2, "zoe", 0)
	b.claim(w, ingest)
	if got := b.claimUsers(w, 1, 10, ingest); strings.Count(got[0], "anna") != 2 ||
		strings.Count(got[0], "zoe") != 2 || strings.Count(got[0], "+") != 9 {
		t.Errorf("claimed %q, want all of both users, and the oldest without a user", got)
	}
}

func TestExchange_TakesTurnsOnlyWithinThePriority(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submitMany(3, "anna", 0)
	b.submitMany(4, "max", 1)
	want := []string{"max", "max", "max", "max", "anna"}
	if got := b.claimUsers(w, 5, 1, ingest); !slices.Equal(got, want) {
		t.Errorf("claims are %q, want %q", got, want)
	}
}

// The backlog of one user, or of none, must not keep those from their turns who submitted later.
func TestExchange_ServesEachOfManyUsersWithOneSlot(t *testing.T) {
	t.Parallel()
	for _, oldest := range []string{"", "a", "zoe"} {
		b := setup(t)
		w := b.worker()
		b.submitMany(100, oldest, 0)
		for _, user := range []string{"b", "c", "d", "e", "f", ""} {
			b.submitMany(20, user, 0)
		}
		count := make(map[string]int)
		for _, user := range b.claimUsers(w, 71, 1, ingest) {
			count[user]++
		}
		for user, n := range count {
			if n < 9 || n > 12 {
				t.Errorf("behind 100 tasks of %q, 71 claims are %v; %q has %d", oldest, count, user, n)
			}
		}
		if want := 7; len(count) != want && (oldest != "" || len(count) != want-1) {
			t.Errorf("behind 100 tasks of %q, 71 claims are %v; want all users", oldest, count)
		}
	}
}

// Otherwise a user's tasks could keep the workers of a later stage for themselves.
func TestExchange_ContinuesInTheOrderOfTurns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		waiting   string
		priority  int16
		user      string
		continues bool
	}{
		"another user": {"anna", 0, "max", false}, "without a user": {"anna", 0, "", false}, "the same user": {"max", 0, "max", true},
		"only without a user": {"", 0, "max", false}, "another user, of lower priority": {"anna", -1, "max", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			w := b.worker()
			b.submitMany(2, c.user, 0)
			b.submitMany(1, c.waiting, c.priority)
			claims := b.exchange(w, 3, nil, ingest).Claims
			slices.SortFunc(claims, func(a, b engine.Claim) int { return compareIDs(a.Task, b.Task) })
			b.completeAll(w, claims[0])
			b.exchange(w, 0, []engine.Report{completed(claims[2])}) // no slots are free, so that it waits
			second := claims[1]
			out := b.exchange(w, 1, []engine.Report{completed(second)}, transcode)
			if len(out.Claims) != 1 || (out.Claims[0].Task == second.Task) != c.continues {
				t.Errorf("the claims are %+v, want the task that continues: %t", out.Claims, c.continues)
			}
		})
	}
}

func TestExchange_DrainsTasksOfUsersOnceWithEightProcesses(t *testing.T) {
	t.Parallel()
	g := mustGraph(t, "video", store.Node{Name: "first"}, store.Node{Name: "second", Needs: []string{"first"}})
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	b := newBundle(t, pool, g)
	for _, user := range []string{"max", "anna", "zoe", ""} {
		b.submitMany(150, user, 0)
	}
	var mu sync.Mutex
	seen := make(map[store.ID]int)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			e := engine.New(pool, g)
			w, err := e.RegisterWorker(context.Background(), store.Worker{Host: "test", PID: 1})
			if err != nil {
				t.Error(err)
				return
			}
			var reports []engine.Report
			for idle := 0; idle < 20; {
				out, err := e.Exchange(context.Background(), engine.ExchangeRequest{
					Worker: w, Reports: reports, FreeSlots: []int{3, 3}, ClaimFrom: []bool{true, true},
				})
				if err != nil {
					t.Error(err)
					return
				}
				reports = out.Locked
				mu.Lock()
				for _, c := range out.Claims {
					seen[c.Token]++
					reports = append(reports, engine.Report{Task: c.Task, Stage: c.Stage, Token: c.Token, Outcome: engine.Completed})
				}
				mu.Unlock()
				if idle++; len(reports) > 0 {
					idle = 0
				}
			}
		})
	}
	all.Wait()
	if n := len(seen); n != 1200 {
		t.Errorf("%d attempts, want 1200", n)
	}
	var open int
	must(t, pool.QueryRow(t.Context(), "select count(*) from "+g.TablePrefix()+"tasks where second_status <> 'completed'").Scan(&open))
	if open > 0 {
		t.Errorf("%d tasks are not completed", open)
	}
}

func TestExchange_LimitsTheRunningTasksOfAUser(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submitMany(6, "max", 0)
	b.submitMany(1, "anna", 0)
	b.submitMany(1, "", 0)
	claim := func(slots int, reports ...engine.Report) (users []string, claims []engine.Claim) {
		t.Helper()
		in := exchangeRequest(w, slots, reports, ingest)
		in.FreeSlots[transcode], in.FreeSlots[metadata] = 0, 0
		in.MaxRunningPerUser = 2
		out, err := b.Exchange(t.Context(), in)
		must(t, err)
		for _, c := range out.Claims {
			users = append(users, c.UserID)
		}
		slices.Sort(users)
		return users, out.Claims
	}
	users, claims := claim(8)
	if !slices.Equal(users, []string{"", "anna", "max", "max"}) {
		t.Fatalf("claimed for %q, want two of max", users)
	}
	if users, _ := claim(8); len(users) > 0 {
		t.Errorf("claimed for %q although max has two running", users)
	}
	first := claims[slices.IndexFunc(claims, func(c engine.Claim) bool { return c.UserID == "max" })]
	if users, _ := claim(8, completed(first)); len(users) > 0 {
		t.Errorf("claimed for %q although the task waits for its next stage", users)
	}
	b.exchange(w, 0, []engine.Report{completed(b.claim(w, metadata))})
	b.completeAll(w, b.claim(w, transcode))
	b.wantStatuses(first.Task, done, done, done, done, done)
	if users, _ := claim(8); !slices.Equal(users, []string{"max"}) {
		t.Errorf("after one was completed, claimed for %q", users)
	}
}

// limitedExchange claims from ingest for users of whom less than two tasks are in progress.
func (b bundle) limitedExchange(w store.ID, slots int, reports ...engine.Report) engine.ExchangeResult {
	b.t.Helper()
	in := exchangeRequest(w, slots, reports, ingest, transcode, metadata)
	in.MaxRunningPerUser = 2
	out, err := b.Exchange(b.t.Context(), in)
	must(b.t, err)
	return out
}

func TestExchange_LimitOfOneUserLeavesSlotsToTasksOfLowerPriority(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submitMany(10, "max", 5)
	b.submitMany(3, "anna", 0)
	b.submitMany(3, "zoe", 0)
	b.submitMany(3, "", -1)
	_, err := b.SubmitAll(t.Context(), []store.Submission{{Source: "a", UserID: "eva", Priority: 9,
		Placement: map[string]store.Placement{"ingest": {Requires: []string{"none"}}}}})
	must(t, err)
	count := make(map[string]int)
	for range 4 {
		for _, c := range b.limitedExchange(w, 4).Claims {
			count[c.UserID]++
		}
	}
	if count["max"] != 2 || count["anna"] != 2 || count["zoe"] != 2 || count[""] != 3 {
		t.Errorf("claimed %v, want two of each user, and all without one", count)
	}
}

func TestExchange_LimitServesTasksWithoutAUser(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submitMany(4, "", 0)
	b.submitMany(40, "max", 0)
	b.submitMany(40, "anna", 0)
	count := make(map[string]int)
	for range 9 {
		in := exchangeRequest(w, 1, nil, ingest)
		in.MaxRunningPerUser = 60
		out, err := b.Exchange(t.Context(), in)
		must(t, err)
		for _, c := range out.Claims {
			count[c.UserID]++
		}
	}
	if count[""] != 3 || count["max"] != 3 || count["anna"] != 3 {
		t.Errorf("nine claims are %v, want three of each user and of none", count)
	}
}

// A task that waits for a retry of a later stage starts again without being claimed in the first stage.
func TestExchange_LimitCountsTasksThatWaitForARetry(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submitMany(4, "max", 0)
	claims := b.limitedExchange(w, 4).Claims
	if len(claims) != 2 {
		t.Fatalf("claimed %d tasks, want two", len(claims))
	}
	for _, c := range claims {
		b.exchange(w, 0, []engine.Report{completed(c)})
		c = b.claim(w, transcode)
		b.exchange(w, 0, []engine.Report{{Task: c.Task, Stage: transcode, Token: c.Token, Outcome: engine.Failed, RetryIn: time.Hour}})
		c = b.claim(w, metadata)
		b.exchange(w, 0, []engine.Report{completed(c)})
	}
	if n := len(b.limitedExchange(w, 4).Claims); n != 0 {
		t.Errorf("%d more were claimed while two wait for a retry of transcode", n)
	}
}

func TestExchange_WaitsForNoOtherClaimOfLimitedUsers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submitMany(4, "max", 0)
	first := b.claim(w, ingest)
	other, err := b.pool.Begin(t.Context())
	must(t, err)
	defer other.Rollback(context.WithoutCancel(t.Context()))
	_, err = other.Exec(t.Context(), "select pg_advisory_xact_lock(hashtext('cuelight limits tasks'))")
	must(t, err)
	out := b.limitedExchange(w, 4, completed(first))
	if out.Claimed[ingest] > 0 || !out.MoreReady[ingest] {
		t.Errorf("claimed %v, more ready %t; want nothing now, and more later", out.Claims, out.MoreReady[ingest])
	}
	b.wantStatuses(first.Task, done, inprogress, inprogress, pending, pending)
}

func TestExchange_NotifiesOtherProcessesOfTasksBelowTheLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submitMany(3, "max", 0)
	claims := b.limitedExchange(w, 1).Claims
	notified := b.listen(b.Graph().Channel("ingest"))
	var failed engine.Report
	for _, c := range claims {
		failed = engine.Report{Task: c.Task, Stage: ingest, Token: c.Token, Outcome: engine.Failed, Dead: true}
	}
	b.limitedExchange(w, 0, failed)
	if got := notified(); len(got) != 1 {
		t.Errorf("%d notifications about ingest after a task died, want one", len(got))
	}
}

// Another task of a user with a limit may start when one ends, also by hand.
func TestNotify_OfTasksBelowTheLimitWhenOneEndsByHand(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(b bundle, id store.ID) error{
		"cancelled": func(b bundle, id store.ID) error { return b.Cancel(b.t.Context(), id) },
		"deleted":   func(b bundle, id store.ID) error { return b.Delete(b.t.Context(), id, store.DeleteOptions{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.submitMany(3, "max", 0)
			claims := b.limitedExchange(b.worker(), 1).Claims
			notified := b.listen(b.Graph().Channel("ingest"))
			must(t, end(b, claims[0].Task))
			if got := notified(); len(got) != 1 {
				t.Errorf("%d notifications about ingest, want one", len(got))
			}
		})
	}
}

func TestExchange_LimitIsExactWithEightProcesses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.submitMany(100, "max", 0)
	var claims atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			e := engine.New(b.pool, b.Graph())
			w, err := e.RegisterWorker(context.Background(), store.Worker{Host: "test", PID: 1})
			if err != nil {
				t.Error(err)
				return
			}
			in := exchangeRequest(w, 2, nil, ingest)
			in.MaxRunningPerUser = 5
			for range 20 {
				out, err := e.Exchange(context.Background(), in)
				if err != nil {
					t.Error(err)
					return
				}
				claims.Add(int32(len(out.Claims)))
			}
		})
	}
	all.Wait()
	if n := b.queryInt("select count(*) from tasks where ingest_status = 'inprogress'"); n != 5 || claims.Load() != 5 {
		t.Errorf("%d tasks are running, and %d were claimed, want 5", n, claims.Load())
	}
}
