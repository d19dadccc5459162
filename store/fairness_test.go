package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

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
	// Every fourth claim is in the usual order.
	want := []string{"zoe", "anna", "max", "zoe", "anna", "max", "max", "zoe", "anna", "max", "max"}
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
		if isUsual := n%4 == 2; n < 12 && !isUsual && (count["max"] != 3 || count["anna"] != 3) {
			t.Errorf("claim %d is of %v, want three of both users", n, count)
		}
		if count["zoe"] > 0 {
			t.Fatalf("claim %d is of %v, before %d tasks with a higher priority", n, count, 99-len(claimed))
		}
		if after = out.LastPosition[ingest]; after.Task.IsZero() {
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

func TestExchange_LeavesATurnToTasksWithoutAUser(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submitMany(8, "", 0)
	b.submitMany(8, "anna", 0)
	b.submitMany(8, "max", 0)
	if got := b.claimUsers(w, 9, 1, ingest); !slices.Contains(got[1:], "") {
		t.Errorf("no claim is without a user: %q", got)
	}
}

// Otherwise a user's tasks could keep the workers of a later stage for themselves.
func TestExchange_DoesNotContinueWhileATaskOfAnotherUserWaits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		waiting, user string
		continues     bool
	}{
		"another user": {"anna", "max", false}, "without a user": {"anna", "", false}, "the same user": {"max", "max", true},
		"only without a user": {"", "max", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			w := b.worker()
			b.submitMany(1, c.user, 0) // older than the one that waits
			older := b.claim(w, ingest)
			b.submitMany(1, c.waiting, 0)
			b.exchange(w, 0, []engine.Report{completed(b.claim(w, ingest))}) // no slots are free, so that it waits
			out := b.exchange(w, 1, []engine.Report{completed(older)})
			if continues := len(out.Claims) > 0; continues != c.continues {
				t.Errorf("it continues: %t, claims %+v", continues, out.Claims)
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

func TestExchange_LimitIsExactWithEightProcesses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.submitMany(100, "max", 0)
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
			if _, err := e.Exchange(context.Background(), in); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := b.queryInt("select count(*) from tasks where ingest_status = 'inprogress'"); n != 5 {
		t.Errorf("%d tasks are running, want 5", n)
	}
}
