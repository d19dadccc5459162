package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestExchange_ClaimsInOrderOfPriorityThenAge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	low := b.submitTask(store.Submission{Source: "low", Priority: -1})
	old := b.submitTask(store.Submission{Source: "old"})
	young := b.submitTask(store.Submission{Source: "young"})
	high := b.submitTask(store.Submission{Source: "high", Priority: 5})
	for i, want := range []store.ID{high, old, young, low} {
		if got := b.claim(w, ingest).Task; got != want {
			t.Errorf("claim %d is %s, want %s", i, got, want)
		}
	}
}

func TestExchange_PrefersUrgentTasksToContinuing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submitTask(store.Submission{Source: "ordinary"})
	ordinaryClaim := b.claim(w, ingest)
	urgent := b.submitTask(store.Submission{Source: "urgent", Priority: 1})
	urgentClaim := b.claim(w, ingest)
	b.exchange(w, 0, []engine.Report{completed(urgentClaim)}) // no slots are free, so that the urgent task waits

	out := b.exchange(w, 1, []engine.Report{completed(ordinaryClaim)}, transcode)
	if len(out.Claims) != 1 || out.Claims[0].Task != urgent {
		t.Errorf("the claims are %+v, want transcode of the urgent task", out.Claims)
	}
}

// Among tasks of one priority the oldest is claimed first, however it became ready. An
// exchange that completes a stage of a newer task continues it only if no older task is
// ready.
func TestExchange_PrefersOlderReadyTasksToContinuing(t *testing.T) {
	t.Parallel()
	type scenario struct {
		bundle
		w       store.ID
		held    []engine.Claim         // ingest of the older and of the newer task
		request engine.ExchangeRequest // completes ingest of the newer, with one slot for transcode
	}
	for name, ready := range map[string]func(v *scenario){
		"waiting for a slot": func(v *scenario) {
			v.exchange(v.w, 0, []engine.Report{completed(v.held[0])})
		},
		"completed in the same exchange": func(v *scenario) {
			v.request.Reports = append(v.request.Reports, completed(v.held[0]))
		},
		"due for a retry": func(v *scenario) {
			c := v.exchange(v.w, 1, []engine.Report{completed(v.held[0])}).Claims[0]
			v.exchange(v.w, 0, []engine.Report{failed(c, time.Hour)})
			v.exec("update steps set run_at = now() where status = 'waiting'")
			v.request.PromoteDue = true
		},
		"retried at once": func(v *scenario) {
			c := v.exchange(v.w, 1, []engine.Report{completed(v.held[0])}).Claims[0]
			v.request.Reports = append(v.request.Reports, failed(c, 0))
		},
		"released": func(v *scenario) {
			c := v.exchange(v.w, 1, []engine.Report{completed(v.held[0])}).Claims[0]
			v.request.Reports = append(v.request.Reports, engine.Report{
				Task: c.Task, Stage: c.Stage, Token: c.Token, Outcome: engine.Released,
			})
		},
		"announced before the position to claim after": func(v *scenario) {
			v.exchange(v.w, 0, []engine.Report{completed(v.held[0])})
			v.request.After = make([]engine.Position, 5)
			v.request.After[transcode] = v.held[0].Position.Before()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := scenario{bundle: setup(t)}
			v.w = v.worker()
			older, newer := v.submit(), v.submit()
			v.held = v.exchange(v.w, 2, nil, ingest).Claims
			v.request = exchangeRequest(v.w, 0, []engine.Report{completed(v.held[1])}, transcode)
			v.request.FreeSlots[transcode] = 1
			ready(&v)
			out, err := v.Exchange(t.Context(), v.request)
			if err != nil {
				t.Fatal(err)
			}
			if len(out.Claims) != 1 || out.Claims[0].Task != older || out.Claims[0].Stage != transcode {
				t.Errorf("claims are %+v, want transcode of %s", out.Claims, older)
			}
			if !out.MoreReady[transcode] {
				t.Error("MoreReady does not report the newer task")
			}
			v.wantStatuses(newer, done, pending, pending, pending, pending)
		})
	}
}

func TestExchange_ContinuesInSlotsLeftByOlderTasks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	for range 6 {
		b.submit()
	}
	held := b.exchange(w, 6, nil, ingest).Claims
	b.exchange(w, 0, []engine.Report{completed(held[1]), completed(held[3])})
	in := exchangeRequest(w, 0,
		[]engine.Report{completed(held[5]), completed(held[4]), completed(held[2]), completed(held[0])}, transcode)
	in.FreeSlots[transcode] = 5
	out, err := b.Exchange(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range out.Claims {
		if c.Task != held[i].Task || c.Stage != transcode {
			t.Errorf("claim %d is %s, want transcode of %s", i, c.Task, held[i].Task)
		}
	}
	if len(out.Claims) != 5 || !out.MoreReady[transcode] {
		t.Errorf("%d claims, more ready %t; want 5, and one more", len(out.Claims), out.MoreReady[transcode])
	}
}

func TestExchange_ReportsMoreReadyWhenItDoesNotContinue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submitTask(store.Submission{Source: "ordinary"})
	ordinaryClaim := b.claim(w, ingest)
	b.submitTask(store.Submission{Source: "urgent", Priority: 1})
	b.exchange(w, 0, []engine.Report{completed(b.claim(w, ingest))})
	out := b.exchange(w, 1, []engine.Report{completed(ordinaryClaim)})
	if !out.MoreReady[transcode] || !out.MoreReady[metadata] {
		t.Errorf("MoreReady is %v, want transcode and metadata", out.MoreReady)
	}
}

func TestExchange_ClaimsAfterAPosition(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submit()
	out := b.exchange(w, 1, nil, ingest)
	position := out.Next[ingest]
	if position != out.Claims[0].Position || position.Task != out.Claims[0].Task {
		t.Fatalf("Next is %+v", position)
	}
	later := b.submit()
	b.submitTask(store.Submission{Source: "urgent", Priority: 1})
	low := b.submitTask(store.Submission{Source: "low", Priority: -1})
	b.exec(`update steps set status = 'ready', token = null, locked_at = null, locked_by = null where status = 'running'`)

	in := exchangeRequest(w, 1, nil, ingest)
	in.After = make([]engine.Position, 5)
	in.After[ingest] = position
	out, err := b.Exchange(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Claims) != 1 || out.Claims[0].Task != later || !out.MoreReady[ingest] {
		t.Errorf("claims are %+v, more ready %t; want the one submitted later, and more", out.Claims, out.MoreReady[ingest])
	}
	in.After[ingest] = out.Next[ingest]
	in.FreeSlots[ingest] = 5
	if out, err = b.Exchange(t.Context(), in); err != nil || len(out.Claims) != 1 || out.Claims[0].Task != low || out.MoreReady[ingest] {
		t.Errorf("claims are %+v, more ready %t, %v; want the one of lower priority", out.Claims, out.MoreReady[ingest], err)
	}
}

// The next claim must find what this one could not get because its row was locked.
func TestExchange_NextIsBeforeALockedStep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	locked, free := b.submit(), b.submit()
	tx, err := b.pool.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), "select from tasks where id = $1 for update", locked)
	must(t, err)
	out := b.exchange(w, 2, nil, ingest)
	if len(out.Claims) != 1 || out.Claims[0].Task != free || !out.MoreReady[ingest] {
		t.Errorf("claims are %+v, more ready %t", out.Claims, out.MoreReady[ingest])
	}
	must(t, tx.Rollback(t.Context()))
	in := exchangeRequest(w, 2, nil, ingest)
	in.After = out.Next
	if out, err = b.Exchange(t.Context(), in); err != nil || len(out.Claims) != 1 || out.Claims[0].Task != locked {
		t.Errorf("claims are %+v, %v; want the one that was locked", out.Claims, err)
	}
}

// The payload of a notification is the position of the step, so that processes claim from there.
func TestExchange_NotifiesOfTheFirstStepThatReportsOpened(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submit()
	b.submit()
	claims := b.exchange(w, 2, nil, ingest).Claims
	conn, err := pgx.Connect(t.Context(), b.pool.Config().ConnString())
	must(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	_, err = conn.Exec(t.Context(), "listen "+b.Graph().Channel("transcode"))
	must(t, err)
	b.exchange(w, 0, []engine.Report{completed(claims[1]), completed(claims[0])})
	n, err := conn.WaitForNotification(t.Context())
	must(t, err)
	position, ok := engine.ParseStep(n.Payload)
	if !ok || position != claims[0].Position {
		t.Errorf("the payload is %q, want the position %+v", n.Payload, claims[0].Position)
	}
	in := exchangeRequest(w, 5, nil, transcode)
	in.After = make([]engine.Position, 5)
	in.After[transcode] = position.Before()
	out, err := b.Exchange(t.Context(), in)
	if err != nil || len(out.Claims) != 2 || out.Claims[0].Task != claims[0].Task {
		t.Errorf("claims are %+v, %v", out.Claims, err)
	}
}
