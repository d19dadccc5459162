package web_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// withdrawn is a key of the scope work with two workers, and one way to make it invalid.
type withdrawn struct {
	*testServer
	engine   *engine.Engine
	key      access.Key
	withdraw func() // disables or revokes it
	worker   store.ID
}

// forEachWithdrawal runs a test for every way.
func forEachWithdrawal(t *testing.T, test func(t *testing.T, w *withdrawn)) {
	for _, action := range []string{"disabled", "revoked"} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			w := &withdrawn{testServer: setup(t)}
			var err error
			w.key, _, err = access.NewKeyStore(w.pool).CreateKey(t.Context(), "north", "work")
			must(t, err)
			w.engine = engine.New(w.pool, w.Graph())
			w.worker = w.register("remote", w.key.PrincipalName())
			path := api + "/keys/" + w.key.ID.String()
			w.withdraw = func() {
				if action == "revoked" {
					w.do(call{method: "DELETE", path: path}).wantStatus(200, nil)
				} else {
					w.post(path+"/disable", nil).wantStatus(200, nil)
				}
			}
			test(t, w)
		})
	}
}

func (w *withdrawn) register(name, principal string) store.ID {
	w.t.Helper()
	id, err := w.engine.RegisterWorker(w.t.Context(), store.Worker{Name: name, Principal: principal})
	must(w.t, err)
	return id
}

// claim claims the first stage of up to n tasks for a worker.
func (w *withdrawn) claim(worker store.ID, n int) []engine.Claim {
	w.t.Helper()
	out, err := w.engine.Exchange(w.t.Context(), engine.ExchangeRequest{
		Worker: worker, FreeSlots: []int{n, 0, 0, 0, 0}, ClaimFrom: []bool{true, 4: false},
	})
	must(w.t, err)
	return out.Claims
}

func TestKeys_WithdrawnStopTheirWorkers(t *testing.T) {
	t.Parallel()
	forEachWithdrawal(t, func(t *testing.T, w *withdrawn) {
		w.register("local", "")
		w.register("other", "key aaaaaaaa (north)")
		w.withdraw()
		rows, err := w.pool.Query(t.Context(), "select name from workers where stopped_at is not null order by name")
		must(t, err)
		stopped, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || !slices.Equal(stopped, []string{"remote"}) {
			t.Errorf("stopped are %v, %v", stopped, err)
		}
		entries, err := operators.Audits(t.Context(), w.pool, 0, 1)
		if err != nil || len(entries) != 1 || !strings.Contains(string(entries[0].Detail), w.worker.String()) {
			t.Errorf("audit is %+v, %v", entries, err)
		}
		if w.submit("/a"); len(w.claim(w.worker, 1)) > 0 {
			t.Error("a stopped worker has made a claim")
		}
	})
}

// The lease of the claims would end after 36 s, and nothing sweeps in this test.
func TestKeys_WithdrawnReleaseTheClaimsOfTheirWorkers(t *testing.T) {
	t.Parallel()
	forEachWithdrawal(t, func(t *testing.T, w *withdrawn) {
		second := w.register("second", w.key.PrincipalName())
		other := w.register("other", "")
		for _, source := range []string{"/a", "/b", "/c"} {
			w.submit(source)
		}
		kept := w.claim(other, 1)
		lost := append(w.claim(w.worker, 1), w.claim(second, 1)...)
		conn, err := w.pool.Acquire(t.Context())
		must(t, err)
		defer conn.Release()
		channels := map[string]bool{w.Graph().ControlChannel(): true, w.Graph().Channel("ingest"): true, w.Graph().EventsChannel(): true}
		for channel := range channels {
			_, err := conn.Exec(t.Context(), "listen "+channel)
			must(t, err)
		}
		w.withdraw()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for len(channels) > 0 {
			n, err := conn.Conn().WaitForNotification(ctx)
			must(t, err)
			delete(channels, n.Channel)
		}
		for _, claim := range lost {
			history, err := w.History(t.Context(), claim.Task)
			if err != nil || len(history) != 1 || history[0].Outcome != "released" ||
				!strings.HasPrefix(history[0].Error, "the key of the worker was ") {
				t.Errorf("the history is %+v, %v", history, err)
			}
		}
		out, err := w.engine.Exchange(t.Context(), engine.ExchangeRequest{
			Worker: w.worker, FreeSlots: make([]int, 5), ClaimFrom: make([]bool, 5),
			Reports: []engine.Report{{Task: lost[0].Task, Stage: 0, Token: lost[0].Token, Outcome: engine.Completed}},
		})
		if err != nil || len(out.Stale) != 1 {
			t.Errorf("the answer to a late report is %+v, %v", out, err)
		}
		again := w.claim(other, 9)
		if len(again) != 2 || again[0].Attempt != 1 || again[1].Attempt != 1 {
			t.Errorf("claimed again are %+v", again)
		}
		held, err := w.engine.FindHeldClaims(t.Context(), other)
		isKept := func(c engine.HeldClaim) bool { return c.Token == kept[0].Token }
		if err != nil || len(held) != 3 || !slices.ContainsFunc(held, isKept) {
			t.Errorf("the other worker holds %+v, %v", held, err)
		}
		types := w.eventTypes()
		if slices.Contains(types, "attempt_expired") || !slices.Contains(types, "released") || !slices.Contains(types, "worker_stopped") {
			t.Errorf("the events are %v", types)
		}
	})
}

// eventTypes returns the types of all events.
func (w *withdrawn) eventTypes() []string {
	w.t.Helper()
	rows, err := w.pool.Query(w.t.Context(), "select type from cuelight_video_events(0)")
	must(w.t, err)
	types, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(w.t, err)
	return types
}
