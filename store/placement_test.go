package store_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// workerOffering registers a worker with labels and encoders that does the named stages, or all.
func (b bundle) workerOffering(labels, encoders []string, stages ...string) store.ID {
	b.t.Helper()
	raw, err := json.Marshal(map[string]any{"labels": labels, "encoders": encoders, "stages": stages})
	if len(stages) == 0 {
		raw, err = json.Marshal(map[string]any{"labels": labels, "encoders": encoders})
	}
	must(b.t, err)
	id, err := b.RegisterWorker(b.t.Context(), store.Worker{Host: "test", PID: 1, Capabilities: raw})
	must(b.t, err)
	return id
}

// submitPlaced submits a task whose ingest is completed, long ago.
func (b bundle) submitPlaced(p store.Placement) store.ID {
	b.t.Helper()
	id := b.submitTask(store.Submission{Source: "a.mp4", Placement: map[string]store.Placement{"metadata": p}})
	b.exec(`update tasks set ingest_status = 'completed' where id = $1`, id)
	return id
}

// claims returns the tasks that an exchange claims for metadata.
func (b bundle) claims(w store.ID) (tasks []store.ID, out engine.ExchangeResult) {
	b.t.Helper()
	out = b.exchange(w, 9, nil, metadata)
	for _, c := range out.Claims {
		tasks = append(tasks, c.Task)
	}
	return tasks, out
}

func TestPlacement_IsClaimedOnlyByWorkersThatOfferWhatItRequires(t *testing.T) {
	t.Parallel()
	b := setup(t)
	plain, gpu := b.workerOffering(nil, []string{"libx264"}), b.workerOffering([]string{"gpu", "big"}, []string{"h264_nvenc"})
	required := b.submitPlaced(store.Placement{Requires: []string{"gpu", "h264_nvenc"}})
	free := b.submitPlaced(store.Placement{})
	impossible := b.submitPlaced(store.Placement{Requires: []string{"gpu", "north"}})

	got, out := b.claims(plain)
	if !slices.Equal(got, []store.ID{free}) || out.MoreReady[metadata] || out.Wait[metadata] >= 0 {
		t.Errorf("a worker without labels claimed %v, more ready %v, next due %v; want only %s",
			got, out.MoreReady[metadata], out.Wait[metadata], free)
	}
	if got, _ := b.claims(gpu); !slices.Equal(got, []store.ID{required}) {
		t.Errorf("a worker with the labels claimed %v, want %s", got, required)
	}
	b.wantStatuses(impossible, "completed", "pending", "pending", "pending", "pending")
}

// A task goes on to its next stage in the same worker only if that may do it, and does not
// hold up a task behind it.
func TestPlacement_ContinuesOnlyInAWorkerThatMayDoTheStage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.workerOffering([]string{"cpu"}, nil)
	needsGPU := map[string]store.Placement{"metadata": {Requires: []string{"gpu"}}}
	placed := b.submitTask(store.Submission{Source: "a", Placement: needsGPU})
	placedClaim := b.claim(w, ingest)
	b.submit()
	plainClaim := b.claim(w, ingest)

	out := b.exchange(w, 1, []engine.Report{completed(placedClaim)})
	for _, c := range out.Claims {
		if c.Stage == metadata {
			t.Errorf("the task that requires a GPU continued: %+v", c)
		}
	}
	out = b.exchange(w, 1, []engine.Report{completed(plainClaim)})
	if !slices.ContainsFunc(out.Claims, func(c engine.Claim) bool { return c.Stage == metadata && c.Task == plainClaim.Task }) {
		t.Errorf("the task behind one that this worker may not do did not continue: %+v", out.Claims)
	}
	gpu := b.workerOffering([]string{"gpu"}, nil)
	if got, _ := b.claims(gpu); !slices.Equal(got, []store.ID{placed}) {
		t.Errorf("the worker with a GPU claimed %v, want %s", got, placed)
	}
}

func TestPlacement_LeavesATaskToPreferredWorkersForItsWait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wait, waited, due time.Duration
	}{
		"by default a minute": {0, 0, time.Minute},
		"given":               {10 * time.Second, 0, 10 * time.Second},
		"in part over":        {0, 45 * time.Second, 15 * time.Second},
		"over":                {10 * time.Second, 11 * time.Second, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			plain, gpu := b.workerOffering(nil, nil), b.workerOffering([]string{"gpu"}, nil)
			task := b.submitPlaced(store.Placement{Prefers: []string{"gpu"}, Wait: c.wait})
			b.exec(`update steps set ready_at = now() - make_interval(secs => $1)`, c.waited.Seconds())
			got, out := b.claims(plain)
			if over := c.due < 0; over != slices.Contains(got, task) {
				t.Errorf("after %s a worker without the label claimed %v", c.waited, got)
			}
			if due := out.Wait[metadata]; c.due >= 0 && (due > c.due || due < c.due-10*time.Second) || c.due < 0 && due >= 0 {
				t.Errorf("the task is due for it in %s, want %s", due, c.due)
			}
			if got, _ := b.claims(gpu); c.due >= 0 && !slices.Equal(got, []store.ID{task}) {
				t.Errorf("the preferred worker claimed %v, want %s", got, task)
			}
		})
	}
}

// A stage that has just become ready waits from then, however old the task is.
func TestPlacement_WaitsFromWhenTheStageBecameReady(t *testing.T) {
	t.Parallel()
	b := setup(t)
	plain := b.workerOffering(nil, nil)
	b.workerOffering([]string{"gpu"}, nil)
	b.submitTask(store.Submission{
		Source: "a", Placement: map[string]store.Placement{"metadata": {Prefers: []string{"gpu"}}},
	})
	b.exec(`update tasks set created_at = now() - interval '1 hour'`)
	claim := b.claim(plain, ingest)
	b.exec(`update steps set locked_at = now() - interval '30 minutes'`)
	out := b.exchange(plain, 1, []engine.Report{completed(claim)})
	for _, c := range out.Claims {
		if c.Stage == metadata {
			t.Errorf("the task continued at once in a worker that is not preferred: %+v", c)
		}
	}
	if got, out := b.claims(plain); len(got) != 0 || out.Wait[metadata] < 50*time.Second {
		t.Errorf("it claimed %v, next due in %s", got, out.Wait[metadata])
	}
}

func TestPlacement_WaitsOnlyForPreferredWorkersThatCanTakeTheTask(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(b bundle, gpu, task store.ID){
		"lost":     func(b bundle, gpu, _ store.ID) { b.exec(`update workers set lost_at = now() where id = $1`, gpu) },
		"stopped":  func(b bundle, gpu, _ store.ID) { must(b.t, b.DeregisterWorker(b.t.Context(), gpu)) },
		"draining": func(b bundle, gpu, _ store.ID) { must(b.t, b.DrainWorker(b.t.Context(), gpu)) },
		"paused": func(b bundle, gpu, _ store.ID) {
			b.exec(`update workers set host = 'other' where id = $1`, gpu)
			must(b.t, b.Pause(b.t.Context(), store.Pause{Stage: "metadata", Host: "other"}))
		},
		"without the stage": func(b bundle, gpu, _ store.ID) {
			b.exec(`update workers set capabilities = capabilities || '{"stages": ["transcode"]}' where id = $1`, gpu)
		},
		"after a failed attempt": func(b bundle, gpu, task store.ID) {
			claim := b.claim(gpu, metadata)
			b.exchange(gpu, 0, []engine.Report{{
				Task: task, Stage: metadata, Token: claim.Token, Outcome: engine.Failed, Error: "no device", Class: "error",
			}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			plain, gpu := b.workerOffering(nil, nil), b.workerOffering([]string{"gpu"}, nil)
			task := b.submitPlaced(store.Placement{Prefers: []string{"gpu"}})
			if got, _ := b.claims(plain); len(got) != 0 {
				t.Fatalf("a worker that is not preferred claimed %v at once", got)
			}
			change(b, gpu, task)
			if got, _ := b.claims(plain); !slices.Equal(got, []store.ID{task}) {
				t.Errorf("nobody preferred can take the task, and another worker claimed %v", got)
			}
		})
	}
}

func TestPlacement_OfAnotherWriterDoesNotDisturbClaims(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.workerOffering([]string{"gpu"}, nil)
	for _, placement := range []string{
		`null`, `[]`, `"gpu"`, `{"metadata": 1}`, `{"metadata": {"requires": "gpu"}}`, `{"metadata": {"prefers": {}, "wait_s": "x"}}`,
		`{"metadata": {"requires": 7}}`,
	} {
		b.exec(`insert into tasks (source, ingest_status, placement) values ($1::text, 'completed', $1::text::jsonb)`, placement)
	}
	plain := b.submitPlaced(store.Placement{})
	if got, _ := b.claims(w); !slices.Contains(got, plain) {
		t.Errorf("it claimed %v, without %s", got, plain)
	}
}

func TestSweep_FindsOnlyTasksThatTheWorkerMayClaim(t *testing.T) {
	t.Parallel()
	b := setup(t)
	plain, gpu := b.workerOffering(nil, nil), b.workerOffering([]string{"gpu"}, nil)
	b.submitPlaced(store.Placement{Requires: []string{"gpu"}})
	b.exec(`update steps set ready_at = now() - interval '1 hour'`)
	b.exec(`insert into tasks (source, ingest_status, priority) select 'urgent', 'completed', 1 from generate_series(1, 3)`)
	for _, c := range []struct {
		worker store.ID
		aged   int
	}{{plain, 0}, {gpu, 1}} {
		if aged := b.sweepAged(c.worker, time.Minute, "metadata"); len(aged) != c.aged {
			t.Errorf("%d aged tasks for worker %s, want %d", len(aged), c.worker, c.aged)
		}
	}
	b.exec(`delete from tasks where source = 'urgent'`)
	for worker, want := range map[store.ID]bool{plain: false, gpu: true} {
		out, err := b.Sweep(t.Context(), engine.SweepRequest{Worker: worker, MaxAttempts: []int{3, 3, 3, 3, 3}})
		must(t, err)
		if (out.First[metadata] != nil) != want {
			t.Errorf("ready for worker %s: %v, want %v", worker, out.First[metadata], want)
		}
	}
}

func TestSubmit_ChecksAndStoresThePlacement(t *testing.T) {
	t.Parallel()
	b := setup(t)
	want := `{"transcode": {"wait_s": 0.5, "prefers": ["h264_nvenc"], "requires": ["gpu"]}}`
	p := map[string]store.Placement{
		"transcode": {Requires: []string{"gpu"}, Prefers: []string{"h264_nvenc"}, Wait: 500 * time.Millisecond},
	}
	all, err := b.SubmitAll(t.Context(), []store.Submission{{Source: "plain"}, {Source: "placed", Placement: p}})
	must(t, err)
	if got := b.get(all[0].ID).Placement; got != nil {
		t.Errorf("the placement of a task without one is %s", got)
	}
	for _, id := range []store.ID{all[1].ID, b.submitTask(store.Submission{Source: "one", Placement: p})} {
		got := b.get(id).Placement
		var read map[string]store.Placement
		if string(got) != want || json.Unmarshal(got, &read) != nil || read["transcode"].Wait != 500*time.Millisecond {
			t.Errorf("the placement is %s, read as %+v, want %s", got, read, want)
		}
	}
	for part, p := range map[string]map[string]store.Placement{
		`unknown stage "transcod"; allowed: ingest, transcode,`: {"transcod": {}},
		`label "a b"`:                     {"transcode": {Requires: []string{"a b"}}},
		`label ""`:                        {"transcode": {Prefers: []string{""}}},
		"it has 21 labels":                {"transcode": {Requires: strings.Split(strings.Repeat("a,", 20)+"a", ",")}},
		"wait must be between 0 and 24h0": {"transcode": {Prefers: []string{"a"}, Wait: 25 * time.Hour}},
	} {
		_, err := b.Submit(t.Context(), store.Submission{Source: "a", Placement: p})
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), part) {
			t.Errorf("the error is %v, want one with %q", err, part)
		}
	}
}
