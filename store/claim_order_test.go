package store_test

import (
	"testing"
	"time"

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

	out := b.exchange(w, 1, []engine.Report{completed(ordinaryClaim)})
	if len(out.Claims) != 0 {
		t.Errorf("the ordinary task continued although an urgent one waits: %+v", out.Claims)
	}
	if got := b.claim(w, transcode).Task; got != urgent {
		t.Errorf("next transcode is of %s, want the urgent task", got)
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
			v.exec("update tasks set transcode_run_at = now() - interval '1 s' where transcode_run_at is not null")
			v.request.PromoteDue[transcode] = true
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
		"before the position to claim after": func(v *scenario) {
			v.exchange(v.w, 0, []engine.Report{completed(v.held[0])})
			v.request.After = make([]engine.Position, 5)
			v.request.After[transcode] = engine.Position{Task: v.held[0].Task}
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
	if len(out.Claims) != 5 || out.Granted[transcode] != out.Requested[transcode] {
		t.Errorf("%d claims, granted %d of %d; want 5, and all that were requested", len(out.Claims),
			out.Granted[transcode], out.Requested[transcode])
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
	position := out.LastPosition[ingest]
	if position != (engine.Position{Task: out.Claims[0].Task}) {
		t.Fatalf("LastPosition is %+v", position)
	}
	later := b.submit()
	b.submitTask(store.Submission{Source: "urgent", Priority: 1})
	b.submitTask(store.Submission{Source: "low", Priority: -1})
	b.exec(`update tasks set ingest_status = 'pending', ingest_token = null, ingest_locked_at = null,
		ingest_locked_by = null where ingest_status = 'inprogress'`)

	in := exchangeRequest(w, 5, nil, ingest)
	in.After = make([]engine.Position, 5)
	in.After[ingest] = position
	out, err := b.Exchange(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Claims) != 1 || out.Claims[0].Task != later || out.Granted[ingest] != 1 || out.Requested[ingest] != 5 {
		t.Errorf("claims are %+v, granted %d of %d; want the one submitted later", out.Claims, out.Granted[ingest],
			out.Requested[ingest])
	}
}
