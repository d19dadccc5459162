package remote_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// judge is Files without files, that refuses results which say so. It waits for release, if that is set.
type judge struct{ release chan struct{} }

func (judge) OpenInput(context.Context, engine.Claim, string) (io.ReadSeekCloser, error) {
	return nil, fs.ErrNotExist
}

func (judge) OutputSize(context.Context, engine.Claim, string) (int64, error) { return 0, nil }

func (judge) WriteOutput(context.Context, engine.Claim, string, int64, int64, string, io.Reader) error {
	return errors.New("there are no outputs")
}

func (j judge) Accept(ctx context.Context, _ engine.Claim, result json.RawMessage) (json.RawMessage, error) {
	if j.release != nil {
		select {
		case <-j.release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if bytes.Equal(result, []byte(`"rubbish"`)) {
		return nil, &remote.RefusedError{Reason: "it is rubbish"}
	}
	if bytes.Equal(result, []byte(`"elsewhere"`)) {
		return nil, remote.ErrOutputsElsewhere
	}
	return result, nil
}

// A worker that delivers rubbish must not make a task dead: its key is disabled after the third
// refusal, and then another worker gets the task.
func TestCoordinator_RetriesRefusedResultsBeyondTheLimitOfAttempts(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 3} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			s := setup(t, stages.Stage{
				Name: "first", MaxAttempts: limit, Backoff: stages.Backoff{Base: 1},
				Work: func(_ context.Context, job *stages.Job) (any, error) {
					if job.Attempt <= 3 {
						return "rubbish", nil
					}
					return "good", nil
				},
			})
			type refusal struct{ principal, reason, class string }
			refusals := make(chan refusal, 10)
			c := s.startCoordinator(func(o *remote.Options) {
				o.Files = judge{}
				o.OnRefused = func(worker store.ID, principal, reason string) {
					var r refusal
					err := s.pool.QueryRow(context.Background(), `select w.principal, a.error_class
				from test_attempts a join test_workers w on w.id = a.worker_id
				where w.id = $1 order by a.attempt desc limit 1`, worker).Scan(&r.principal, &r.class)
					if err != nil || r.principal != principal {
						t.Errorf("the refusal of %s is not in the history: %+v, %v", principal, r, err)
					}
					r.reason = reason
					refusals <- r
				}
			})
			worker := s.work(func(o *remote.ClientOptions, _ *stages.Runner) { o.URL = c.url })
			task := s.submit("a source")
			for range 3 {
				if got, want := <-refusals, (refusal{"key-1", "it is rubbish", remote.ClassRefused}); got != want {
					t.Errorf("the refusal is %+v", got)
				}
				e := worker.wait(t, stages.StageStarted)
				for e.Kind == stages.StageStarted || e.Kind == stages.SweepEnded {
					e = <-worker.events
				}
				if e.Kind != stages.AttemptFailed || e.Err.Error() != "the result was refused: it is rubbish" {
					t.Errorf("the worker reports %s, %v", e.Kind, e.Err)
				}
			}
			waittest.Equal(t, "the status", store.StatusCompleted, func() store.Status { return s.status(task, "first") })
		})
	}
}

// A coordinator on another host took over, which has not the files that the worker has sent.
func TestCoordinator_ReleasesCompletionsWhoseOutputsAreElsewhere(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", MaxAttempts: 1, Work: echo})
	s.coordinator = s.startCoordinator(func(o *remote.Options) {
		o.Files = judge{}
		o.OnRefused = func(store.ID, string, string) { t.Error("the worker's key may be disabled for it") }
	})
	worker := s.register("key-1")
	task := s.submit("a source")
	c := s.claim("key-1", worker, "first")
	body := fmt.Sprintf(`{"worker_id":%q,"reports":[{"token":%q,"outcome":"completed","result":"elsewhere"}]}`, worker, c.Token)
	var out struct {
		Refused []struct {
			Error string
			Dead  bool
		}
		Stale []any
	}
	s.call("key-1", "/exchange", body, &out)
	if len(out.Refused) != 1 || out.Refused[0].Dead || out.Refused[0].Error != remote.ErrOutputsElsewhere.Error() {
		t.Errorf("the answer is %+v", out)
	}
	history, err := s.History(t.Context(), task)
	if err != nil || len(history) != 1 || history[0].Outcome != "released" || s.status(task, "first") != store.StatusPending {
		t.Errorf("the history is %+v, %v", history, err)
	}
	if s.call("key-1", "/exchange", body, &out); len(out.Stale) != 1 {
		t.Errorf("the answer to the same again is %+v", out)
	}
	if _, err := s.pool.Exec(t.Context(), "update test_steps set run_at = now()"); err != nil {
		t.Fatal(err)
	}
	if again := s.claim("key-1", worker, "first"); again.Token == c.Token {
		t.Errorf("the claim is %+v again", again)
	}
}

func TestExchange_SaysWhichResultsWereRefused(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", MaxAttempts: 3, Backoff: stages.Backoff{Base: time.Minute, Max: time.Minute}, Work: echo})
	s.coordinator = s.startCoordinator(func(o *remote.Options) { o.Files = judge{} })
	worker := s.register("key-1")
	report := func(result string) (refused []map[string]any) {
		s.submit("a source")
		c := s.claim("key-1", worker, "first")
		var out struct{ Refused []map[string]any }
		s.call("key-1", "/exchange", fmt.Sprintf(`{"worker_id":%q,"reports":[{"token":%q,"outcome":"completed","result":%s}]}`,
			worker, c.Token, result), &out)
		for _, r := range out.Refused {
			if r["token"] != c.Token.String() {
				t.Errorf("refused is %v", r)
			}
			if in := r["retry_in_s"].(float64); r["dead"] != (in == 0) || in > 72 { // a minute, varied
				t.Errorf("refused is %v", r)
			}
			delete(r, "token")
			delete(r, "retry_in_s")
		}
		return out.Refused
	}
	if got := report(`"good"`); got != nil {
		t.Errorf("refused are %v", got)
	}
	want := []map[string]any{{"error": "the result was refused: it is rubbish", "dead": false}}
	if got := report(`"rubbish"`); !reflect.DeepEqual(got, want) {
		t.Errorf("refused are %v, want %v", got, want)
	}
	want = []map[string]any{{"error": `store result: it contains \u0000`, "dead": true}}
	if got := report(`"\u0000"`); !reflect.DeepEqual(got, want) {
		t.Errorf("refused are %v, want %v", got, want)
	}
}

func TestRemoteWorker_ShowsThatItsFilesAreBeingChecked(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: func(_ context.Context, job *stages.Job) (any, error) {
		job.Progress(stages.Progress{Percent: 99, Note: "uploading"})
		return "good", nil
	}})
	release := make(chan struct{})
	c := s.startCoordinator(func(o *remote.Options) { o.Files = judge{release} })
	worker := s.work(func(o *remote.ClientOptions, _ *stages.Runner) { o.URL = c.url })
	task := s.submit("a source")
	waittest.Equal(t, "the note", "being checked", func() string {
		workers, err := s.Workers(t.Context(), false)
		if err != nil || len(workers) != 1 || len(workers[0].Running) != 1 {
			return ""
		}
		return workers[0].Running[0].Note
	})
	if got := s.status(task, "first"); got != store.StatusInProgress {
		t.Errorf("the task is %s", got)
	}
	close(release)
	if e := worker.wait(t, stages.StageCompleted); e.Attempt != 1 {
		t.Errorf("attempt %d completed", e.Attempt)
	}
}

func TestExchange_SaysWhichFilesAreBeingChecked(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	release := make(chan struct{})
	s.coordinator = s.startCoordinator(func(o *remote.Options) { o.Files = judge{release} })
	worker := s.register("key-1")
	var reports []string
	for range 3 {
		s.submit("a source")
		reports = append(reports, fmt.Sprintf(`{"token":%q,"outcome":"completed"}`, s.claim("key-1", worker, "first").Token))
	}
	type answer struct {
		Checking []struct {
			Token   store.ID
			RetryIn float64 `json:"retry_in_s"`
		}
		Retry, Stale []any
	}
	exchange := func() (out answer) {
		s.call("key-1", "/exchange", fmt.Sprintf(`{"worker_id":%q,"reports":[%s]}`, worker, strings.Join(reports, ",")), &out)
		return out
	}
	for range 2 {
		started := time.Now()
		got := exchange()
		if len(got.Checking) != 3 || got.Checking[0].RetryIn != 2 || len(got.Retry)+len(got.Stale) > 0 {
			t.Errorf("the answer is %+v", got)
		}
		if took := time.Since(started); took > 2*time.Second {
			t.Errorf("the answer to three reports took %s", took)
		}
	}
	close(release)
	waittest.Equal(t, "the number of reports that are checked", 0, func() int { return len(exchange().Checking) })
}

// reportToCheck reports a completed stage, whose check goes on until release is closed. It returns the body of the report.
func (s *site) reportToCheck(release chan struct{}) (worker, task store.ID, body string) {
	s.t.Helper()
	s.coordinator = s.startCoordinator(func(o *remote.Options) { o.Files = judge{release} })
	worker, task = s.register("key-1"), s.submit("a source")
	body = fmt.Sprintf(`{"worker_id":%q,"reports":[{"token":%q,"task_id":%q,"outcome":"completed","result":"good"}]}`,
		worker, s.claim("key-1", worker, "first").Token, task)
	var answer struct{ Checking []any }
	s.call("key-1", "/exchange", body, &answer)
	if len(answer.Checking) != 1 {
		s.t.Fatalf("the answer is %+v", answer)
	}
	return worker, task, body
}

func TestCoordinator_RecordsCheckedFilesOfAWorkerThatIsGone(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	release := make(chan struct{})
	_, task, body := s.reportToCheck(release)
	locked, err := s.pool.Begin(t.Context()) // as another report of the task does
	if err == nil {
		_, err = locked.Exec(t.Context(), `select from `+s.Graph().TablePrefix()+`tasks for update`)
	}
	if err != nil {
		t.Fatal(err)
	}
	close(release)
	time.Sleep(300 * time.Millisecond) // the coordinator tries meanwhile
	if err := locked.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	waittest.Equal(t, "the stage", store.StatusCompleted, func() store.Status { return s.status(task, "first") })
	var answer struct{ Checking, Stale, Retry []any }
	s.call("key-1", "/exchange", body, &answer) // it was not gone after all
	if len(answer.Checking)+len(answer.Stale)+len(answer.Retry) > 0 {
		t.Errorf("the answer to the next report is %+v", answer)
	}
}

func TestCoordinator_RecordsCheckedFilesBeforeASuccessorExpiresTheWorker(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	release := make(chan struct{})
	worker, task, _ := s.reportToCheck(release)
	s.register("key-1")
	time.AfterFunc(time.Second, func() { close(release) })
	s.call("key-1", "/workers/expire", fmt.Sprintf(`{"worker_ids":[%q]}`, worker), new(any))
	if got := s.status(task, "first"); got != store.StatusCompleted {
		t.Errorf("the stage is %s after the expiry", got)
	}
}
