package remote_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// at returns the site with another coordinator.
func (s *site) at(c *coordinator) *site {
	other := *s
	other.coordinator = c
	return &other
}

func TestExchange_BringsTheClaimsThatTheWorkerDoesNotKnow(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	worker := s.register("key-1")
	for range 3 {
		s.submit("a source")
	}
	known, lost := s.claim("key-1", worker, "first"), s.claim("key-1", worker, "first")
	started := time.Now()
	got := s.exchange(worker, fmt.Sprintf(`"held":[%q],"free_slots":{"first":1}`, known.Token)).Claims
	if len(got) != 1 || got[0] != lost {
		t.Errorf("the claims are %+v, want %+v in the one slot", got, lost)
	}
	if took := time.Since(started); took > time.Second {
		t.Errorf("the answer took %s", took)
	}
	all := fmt.Sprintf(`"held":[%q,%q],"free_slots":{"first":1}`, known.Token, lost.Token)
	if got := s.exchange(worker, all).Claims; len(got) != 1 || got[0] == lost || got[0] == known {
		t.Errorf("the claims of a worker that knows all are %+v", got)
	}
}

func TestExchange_BringsTheClaimsOfAnotherCoordinator(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	worker := s.register("key-1")
	other := s.at(s.startCoordinator(nil))
	s.exchange(worker, `"sequence":1,"held":[],"free_slots":{}`)
	s.submit("a source")
	var lost []claimed
	sequence := 1
	waittest.Until(t, "there is a claim", func() bool {
		sequence++
		lost = other.exchange(worker, fmt.Sprintf(`"sequence":%d,"held":[],"free_slots":{"first":1}`, sequence)).Claims
		return len(lost) > 0
	})
	got := s.exchange(worker, fmt.Sprintf(`"sequence":%d,"held":[],"free_slots":{"first":1}`, sequence+1)).Claims
	if !slices.Equal(got, lost) {
		t.Errorf("the claims are %+v, want %+v", got, lost)
	}
	other.exchange(worker, fmt.Sprintf(`"sequence":%d,"reports":[{"token":%q,"outcome":"completed"}]`, sequence+2, lost[0].Token))
	// This coordinator does not know that the claim has ended.
	if got := s.exchange(worker, fmt.Sprintf(`"sequence":%d,"held":[]`, sequence+3)).Claims; len(got) != 0 {
		t.Errorf("the claims after the report are %+v", got)
	}
}

func TestExchange_QueriesNothingMoreWhileNothingIsLost(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	counter := &queryCounter{}
	config := s.pool.Config()
	config.ConnConfig.Tracer = counter
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	counted := s.at(s.startCoordinator(func(o *remote.Options) { o.Pool = pool }))
	worker := counted.register("key-1")
	counted.exchange(worker, `"sequence":1,"held":[],"free_slots":{"first":1}`) // it finds that nothing is ready
	s.submit("a source")
	c := counted.claim("key-1", worker, "first")
	before := counter.n.Load()
	for sequence := 2; sequence < 12; sequence++ {
		counted.exchange(worker, fmt.Sprintf(`"sequence":%d,"held":[%q]`, sequence, c.Token))
	}
	if n := counter.n.Load() - before; n > 1 { // the renewal sends one every two seconds
		t.Errorf("10 exchanges made %d queries", n)
	}
}

func TestExchange_AcceptsARecordedReportAgain(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	worker := s.register("key-1")
	s.submit("a source")
	c := s.claim("key-1", worker, "first")
	report := func(outcome, task string) int {
		return len(s.exchange(worker, fmt.Sprintf(`"reports":[{"token":%q,"outcome":%q%s}]`, c.Token, outcome, task)).Stale)
	}
	withTask := fmt.Sprintf(`,"task_id":%q`, c.Task)
	got := []int{report("completed", withTask), report("completed", withTask), report("completed", ""), report("failed", withTask)}
	if want := []int{0, 0, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("the numbers of stale reports are %v, want %v", got, want)
	}
}

// An exchange of a coordinator that was killed may be committed after another coordinator has read the worker's claims.
func TestExchange_BringsClaimsThatAreCommittedLate(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	worker := s.register("key-1")
	other := s.at(s.startCoordinator(nil))
	other.exchange(worker, `"sequence":1,"held":[],"free_slots":{}`)
	s.submit("a source")
	late, err := engine.New(s.pool, s.pipeline.Graph()).Exchange(t.Context(), engine.ExchangeRequest{
		Worker: worker, FreeSlots: []int{1}, ClaimFrom: []bool{true},
	})
	if err != nil || len(late.Claims) != 1 {
		t.Fatalf("claims %+v, %v", late.Claims, err)
	}
	sequence := 1
	waittest.Until(t, "the claim arrives", func() bool {
		sequence++
		got := other.exchange(worker, fmt.Sprintf(`"sequence":%d,"held":[],"free_slots":{"first":1}`, sequence)).Claims
		return len(got) == 1 && got[0].Token == late.Claims[0].Token
	})
}

// The answer to a waiting request may arrive long after another answer had the same claim.
func TestClient_DoesNotReturnAClaimThatHasEnded(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	// The answer that brings a claim to the waiting request is held until the claim has ended.
	held, ended, waitsAgain := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var heldOnce, againOnce sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		waits := bytes.Contains(body, []byte(`"wait_s"`))
		select {
		case <-ended:
			if waits {
				againOnce.Do(func() { close(waitsAgain) })
			}
		default:
		}
		answer := httptest.NewRecorder()
		s.ServeHTTP(answer, r)
		if waits && bytes.Contains(answer.Body.Bytes(), []byte(`"token"`)) {
			heldOnce.Do(func() { close(held) })
			<-ended
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}))
	t.Cleanup(server.Close)
	client, err := remote.NewClient(remote.ClientOptions{URL: server.URL, Key: "key-1", Graph: s.pipeline.Graph()})
	if err != nil {
		t.Fatal(err)
	}
	backend, wakes := client.Backend(), client.Wakes()
	worker, _, err := backend.RegisterWorker(t.Context(), store.Worker{Name: "a", Host: "a", Lease: 36 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	exchange := func(reports ...engine.Report) []engine.Claim {
		t.Helper()
		out, err := backend.Exchange(t.Context(), engine.ExchangeRequest{
			Worker: worker, Reports: reports, FreeSlots: []int{1}, ClaimFrom: []bool{true},
		})
		if err != nil || len(out.Stale) > 0 {
			t.Fatalf("%+v, %v", out, err)
		}
		return out.Claims
	}
	exchange()
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer running.Wait()
	defer stop()
	running.Go(func() { _ = wakes.(interface{ Run(context.Context) error }).Run(ctx) })
	s.submit("a source")
	<-held
	claims := exchange()
	if len(claims) != 1 {
		t.Fatalf("the claims are %+v, want one", claims)
	}
	exchange(engine.Report{Task: claims[0].Task, Token: claims[0].Token, Outcome: engine.Completed})
	close(ended)
	<-waitsAgain
	if again := exchange(); len(again) != 0 {
		t.Errorf("the claims after the end are %+v", again)
	}
}

// loseFirst closes the connection instead of the first answer for which is returns true.
func (s *site) loseFirst(is func(answer []byte) bool) (url string) {
	var lost atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		s.coordinator.ServeHTTP(answer, r)
		if is(answer.Body.Bytes()) && lost.CompareAndSwap(false, true) {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}))
	s.t.Cleanup(server.Close)
	return server.URL
}

func TestRemoteWorker_StartsAClaimWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	url := s.loseFirst(func(answer []byte) bool { return bytes.Contains(answer, []byte(`"token"`)) })
	worker := s.work(func(o *remote.ClientOptions, _ *stages.Runner) { o.URL = url })
	task := s.submit("a source")
	submitted := time.Now()
	if e := worker.wait(t, stages.StageCompleted); e.Attempt != 1 {
		t.Errorf("attempt %d completed", e.Attempt)
	}
	if took := time.Since(submitted); took > 3*time.Second {
		t.Errorf("the task took %s", took)
	}
	history, err := s.History(t.Context(), task)
	if err != nil || len(history) != 1 {
		t.Errorf("the history is %+v, %v", history, err)
	}
}

func TestRemoteWorker_CompletesAStageAlthoughTheAnswerWasLost(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	var task store.ID
	url := s.loseFirst(func(answer []byte) bool {
		var out map[string]json.RawMessage
		return json.Unmarshal(answer, &out) == nil && out["claims"] != nil && s.status(task, "first") == store.StatusCompleted
	})
	task = s.submit("a source")
	worker := s.work(func(o *remote.ClientOptions, _ *stages.Runner) { o.URL = url })
	for {
		e := <-worker.events
		if e.Kind == stages.StageCompleted {
			return
		}
		if e.Kind == stages.ClaimRevoked {
			t.Fatalf("the worker takes the completed stage for lost: %v", e.Err)
		}
	}
}

// Otherwise it asks for more claims than it has slots, and keeps them until a slot is free.
func TestClient_CountsClaimsThatTheWaitingRequestBringsDuringAnExchange(t *testing.T) {
	t.Parallel()
	p, err := stages.New("test", stages.Stage{Name: "first", Work: echo})
	if err != nil {
		t.Fatal(err)
	}
	type request struct {
		Wait      float64        `json:"wait_s"`
		FreeSlots map[string]int `json:"free_slots"`
		answer    chan string
	}
	exchanges := make(chan request)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := fmt.Sprintf(`{"worker_id":%q}`, store.ID{1})
		if r.URL.Path == "/exchange" {
			in := request{answer: make(chan string, 1)}
			if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
				t.Error(err)
			}
			select {
			case exchanges <- in:
				answer = <-in.answer
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client, err := remote.NewClient(remote.ClientOptions{
		URL: server.URL, Key: "key-1", Graph: p.Graph(), HTTP: &http.Client{Transport: transport},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := client.Backend().RegisterWorker(t.Context(), store.Worker{}); err != nil {
		t.Fatal(err)
	}
	<-client.Wakes().C() // of the registration
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- client.Wakes().(interface{ Run(context.Context) error }).Run(ctx) }()
	waiting := <-exchanges
	claims := make(chan []engine.Claim, 1)
	go func() {
		out, err := client.Backend().Exchange(ctx, engine.ExchangeRequest{FreeSlots: []int{1}})
		if err != nil {
			t.Error(err)
		}
		claims <- out.Claims
	}()
	exchange := <-exchanges
	waiting.answer <- fmt.Sprintf(`{"claims":[{"task_id":%q,"token":%q,"stage":"first","params":{}}]}`, store.ID{2}, store.ID{3})
	<-client.Wakes().C()
	exchange.answer <- `{"claims":[]}`
	if got := <-claims; len(got) != 1 || got[0].Token != (store.ID{3}) {
		t.Errorf("the exchange brings %+v", got)
	}
	next := <-exchanges
	next.answer <- `{}`
	if next.Wait == 0 || next.FreeSlots["first"] > 0 {
		t.Errorf("the next request is %+v, but no slot is free", next)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
