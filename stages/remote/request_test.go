package remote_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
)

// register registers a worker without a Runner, and returns its id.
func (s *site) register(key string) store.ID {
	s.t.Helper()
	return s.registerWith(key, `"version":"1"`)
}

// registerWith is register with further members.
func (s *site) registerWith(key, members string) store.ID {
	s.t.Helper()
	var out struct {
		Worker store.ID `json:"worker_id"`
	}
	s.call(key, "/register", `{"protocol":1,"pipeline":"test","host":"h","pid":1,`+members+`}`, &out)
	return out.Worker
}

// claimed is a claim that register's worker has.
type claimed struct {
	Token store.ID `json:"token"`
	Task  store.ID `json:"task_id"`
	Stage string   `json:"stage"`
}

// claim claims one task of a stage.
func (s *site) claim(key string, worker store.ID, stage string) claimed {
	s.t.Helper()
	var out struct{ Claims []claimed }
	waittest.Until(s.t, "there is a claim", func() bool {
		s.call(key, "/exchange", fmt.Sprintf(`{"worker_id":%q,"free_slots":{%q:1}}`, worker, stage), &out)
		return len(out.Claims) == 1
	})
	return out.Claims[0]
}

// exchanged is the answer to an exchange.
type exchanged struct {
	Claims []claimed
	Stale  []struct {
		Token     store.ID
		Cancelled bool
	}
}

// exchange sends an exchange to a coordinator, with further members.
func (s *site) exchange(worker store.ID, members string) (out exchanged) {
	s.t.Helper()
	s.call("key-1", "/exchange", fmt.Sprintf(`{"worker_id":%q,%s}`, worker, members), &out)
	return out
}

// report reports an outcome, and returns whether the claim was lost.
func (s *site) report(key string, worker, token store.ID, outcome string) (isLost bool) {
	s.t.Helper()
	var out exchanged
	s.call(key, "/exchange", fmt.Sprintf(`{"worker_id":%q,"reports":[{"token":%q,%s}]}`, worker, token, outcome), &out)
	return len(out.Stale) > 0
}

// call sends a request that must succeed, and decodes the answer.
func (s *site) call(key, path, body string, out any) {
	s.t.Helper()
	status, text := s.sendAs(key, http.MethodPost, path, body)
	if status >= 300 {
		s.t.Fatalf("%s: %d %s", path, status, text)
	}
	if err := json.Unmarshal(text, out); err != nil {
		s.t.Fatal(err)
	}
}

func TestCoordinator_GivesNoStageThatRemoteWorkersMayNotDo(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo}, stages.Stage{Name: "second", Needs: []string{"first"}, Work: echo})
	s.coordinator = s.startCoordinator(func(o *remote.Options) { o.Stages = []string{"first"} })
	worker := s.register("key-1")
	exchange := func(slots string) string {
		return s.post("key-1", "/exchange", fmt.Sprintf(`{"worker_id":%q,"free_slots":{%s}}`, worker, slots))
	}
	if got := exchange(`"second":1`); got != "invalid" {
		t.Errorf("slots of a stage for others: %q", got)
	}
	if got := exchange(`"second":0`); got != "" {
		t.Errorf("no slots of a stage for others: %q", got)
	}
	if got := exchange(`"third":1`); got != "invalid" {
		t.Errorf("slots of no stage: %q", got)
	}
	task := s.submit("a source")
	c := s.claim("key-1", worker, "first")
	if s.report("key-1", worker, c.Token, `"outcome":"completed"`) {
		t.Error("the claim is lost")
	}
	if got := s.status(task, "second"); got != store.StatusPending {
		t.Errorf("the stage for others is %s", got)
	}
	client, err := remote.NewClient(remote.ClientOptions{URL: s.url, Key: "key-1", Graph: s.pipeline.Graph()})
	if err != nil {
		t.Fatal(err)
	}
	r := stages.Runner{Pipeline: s.pipeline, Backend: client.Backend(), Wakes: client.Wakes()}
	if err := r.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "second; allowed: first") {
		t.Errorf("a worker that offers the stage ends with %v", err)
	}
}

// The requests are those of a worker with a valid key, whatever it says in them.
func TestCoordinator_AnswersInvalidRequestsWithTheirProblem(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	failures := make(chan error, 100)
	s.coordinator = s.startCoordinator(func(o *remote.Options) {
		o.OnError = func(err error) {
			if err != nil {
				failures <- err
			}
		}
	})
	worker := s.register("key-1")
	other := s.register("key-2")
	s.submit("a source")
	c := s.claim("key-1", worker, "first")
	task, nobody := c.Task, store.ID{1}
	register := func(members string) string { return `{"protocol":1,"pipeline":"test",` + members + `}` }
	of := func(id store.ID, members string) string { return fmt.Sprintf(`{"worker_id":%q,%s}`, id, members) }
	many := strings.Repeat(fmt.Sprintf(`{"token":%q},`, nobody), 1000) + fmt.Sprintf(`{"token":%q}`, c.Token)
	for name, c := range map[string]struct{ path, body, kind string }{
		"no JSON":                   {"/exchange", `{`, "invalid-request"},
		"no body":                   {"/exchange", ``, "invalid-request"},
		"a result that is no JSON":  {"/exchange", of(worker, `"reports":[{"result":tru}]`), "invalid-request"},
		"a NUL in JSON":             {"/exchange", of(worker, "\"reports\":[{\"result\":\"\x00\"}]"), "invalid-request"},
		"a body of 21 MiB":          {"/exchange", of(worker, `"reports":[{"result":"`+strings.Repeat("x", 21<<20)+`"}]`), "too-large"},
		"another protocol":          {"/register", `{"protocol":2,"pipeline":"test"}`, "protocol-version"},
		"another pipeline":          {"/register", `{"protocol":1,"pipeline":"video"}`, "invalid"},
		"a name with a NUL":         {"/register", register(`"name":"\u0000"`), "invalid"},
		"a host with a NUL":         {"/register", register(`"host":"\u0000"`), "invalid"},
		"a version with a NUL":      {"/register", register(`"version":"\u0000"`), "invalid"},
		"a huge process id":         {"/register", register(`"pid":9223372036854775807`), "invalid"},
		"a lease of a year":         {"/register", register(`"lease_s":31536000`), "invalid"},
		"a lease of a moment":       {"/register", register(`"lease_s":0.001`), "invalid"},
		"metadata of 20 KiB":        {"/register", register(`"metadata":{"a":"` + strings.Repeat("x", 20<<10) + `"}`), "invalid"},
		"capabilities of 20 KiB":    {"/register", register(`"capabilities":{"a":"` + strings.Repeat("x", 20<<10) + `"}`), "invalid"},
		"a label with a space":      {"/register", register(`"capabilities":{"labels":["a b"]}`), "invalid"},
		"a host of 300 bytes":       {"/register", register(`"host":"` + strings.Repeat("x", 300) + `"`), "invalid"},
		"a heartbeat of 2 MiB":      {"/heartbeat", of(worker, `"running":[`+strings.Repeat(" ", 2<<20)+`]`), "too-large"},
		"more reports than claims":  {"/exchange", of(worker, `"reports":[`+strings.Repeat("{},", 10_000)+`{}]`), "invalid-request"},
		"capabilities with a NUL":   {"/register", register(`"capabilities":{"a":"\u0000"}`), "invalid"},
		"a worker of another key":   {"/exchange", of(other, `"free_slots":{}`), "worker-unknown"},
		"a worker of nobody":        {"/exchange", of(nobody, `"free_slots":{}`), "worker-unknown"},
		"a drain of another's":      {"/drain", fmt.Sprintf(`{"worker_id":%q}`, other), "worker-unknown"},
		"a stop of another's":       {"/deregister", fmt.Sprintf(`{"worker_id":%q}`, other), "worker-unknown"},
		"a heartbeat for another's": {"/heartbeat", of(other, `"running":[]`), "worker-unknown"},
		"a wait in the address":     {"/exchange?wait=1s", of(worker, `"free_slots":{}`), "invalid-request"},
		"a wait that is a text":     {"/exchange", of(worker, `"wait_s":"30s"`), "invalid-request"},
		"a negative wait":           {"/exchange", of(worker, `"wait_s":-1`), "invalid"},
		"an unknown outcome": {
			"/exchange", of(worker, fmt.Sprintf(`"reports":[{"token":%q,"outcome":"won"}]`, c.Token)), "invalid",
		},
		"outcomes of nobody's": {"/exchange", of(worker, fmt.Sprintf(`"reports":[{"task_id":%q,"token":%q,"outcome":"x"}]`, nobody, nobody)), ""},
		"an unknown call":      {"/claims/" + c.Token.String() + "/complete", `{}`, "not-found"},
		"tokens of nobody":     {"/heartbeat", of(worker, `"running":[`+many+`]`), ""},
		"checks of nobody's":   {"/claims/check", of(worker, fmt.Sprintf(`"tokens":[%q]`, nobody)), ""},
		"expiry of another's":  {"/workers/expire", fmt.Sprintf(`{"worker_ids":[%q]}`, other), ""},
		"progress beyond reason": {
			"/heartbeat", of(worker, fmt.Sprintf(`"running":[{"token":%q,"started":true,"progressed":true,"percent":1e300,`+
				`"speed":1e300,"eta_s":1e300,"note":"\u0000`+strings.Repeat("é", 1000)+`"}]`, c.Token)), "",
		},
	} {
		if got := s.post("key-1", c.path, c.body); got != c.kind {
			t.Errorf("%s: the problem is %q, want %q", name, got, c.kind)
		}
	}
	select {
	case err := <-failures:
		t.Errorf("it counts as a failure of the database: %v", err)
	default:
	}
	if workers, err := s.Workers(context.Background(), false); err != nil || len(workers) != 2 {
		t.Errorf("the workers are %+v, %v", workers, err)
	}
	twice := fmt.Sprintf(`"reports":[{"token":%q,"outcome":"completed","result":1},{"token":%q,"outcome":"failed"}]`, c.Token, c.Token)
	if got := s.post("key-1", "/exchange", of(worker, twice)); got != "" {
		t.Errorf("two reports of one claim: %q", got)
	}
	if got := s.status(task, "first"); got != store.StatusCompleted {
		t.Errorf("the task is %s", got)
	}
}

func TestCoordinator_NamesTheMembersThatABodyMayHave(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	for _, c := range []struct{ path, body, detail string }{
		{"/drain", `{"worker":1}`, `unknown member "worker"; allowed: worker_id`},
		{"/heartbeat", `{"running":[{"percent":7},{"progress":7}]}`,
			`unknown member "progress"; allowed: token, percent, speed, eta_s, note, started, progressed`},
		{"/exchange", `{"wait":30}`, `unknown member "wait"; allowed: worker_id, sequence, reports, held, free_slots, wait_s`},
		{"/exchange", `{"held":7,"wait":30}`, `unknown member "wait"; allowed: worker_id, sequence, reports, held, free_slots, wait_s`},
		{"/exchange", `{"reports":[{"tokens":[]}]}`,
			`unknown member "tokens"; allowed: token, task_id, outcome, result, error, error_class, permanent, retry_in_s`},
		{"/exchange", `{"reports":[{"result":{"any":1},"outcome":7}]}`,
			`the body is invalid: json: cannot unmarshal number into Go struct field reportBody.reports.outcome of type engine.Outcome`},
	} {
		status, text := s.sendAs("key-1", http.MethodPost, c.path, c.body)
		var p struct{ Detail string }
		if err := json.Unmarshal(text, &p); err != nil || status != http.StatusBadRequest || p.Detail != c.detail {
			t.Errorf("%s %s: %d, %q", c.path, c.body, status, p.Detail)
		}
	}
}

func TestCoordinator_StoresErrorsOfAnyText(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", MaxAttempts: 1, Work: echo})
	worker := s.register("key-1")
	for _, body := range []string{
		`"error":"\u0000","error_class":"\u0000"`, `"error":"\ud800","error_class":"\ud800"`, `"retry_in_s":1e300`,
		`"error":"` + strings.Repeat("x", 10<<20) + `","error_class":"` + strings.Repeat("x", 5<<20) + `"`,
	} {
		task := s.submit("a source")
		c := s.claim("key-1", worker, "first")
		if s.report("key-1", worker, c.Token, `"outcome":"failed",`+body) {
			t.Errorf("%.50s: the claim is lost", body)
		}
		if got := s.status(task, "first"); got != store.StatusDead {
			t.Errorf("%.50s: the task is %s", body, got)
		}
		history, err := s.History(context.Background(), task)
		if err != nil || len(history) != 1 || len(history[0].Error) > 1<<20 || len(history[0].Class) > 1000 {
			t.Errorf("%.50s: the history is not that of one failure", body)
		}
	}
}

func TestCoordinator_RecordsNothingOfACancelledTask(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	worker := s.register("key-1")
	task := s.submit("a source")
	c := s.claim("key-1", worker, "first")
	if err := s.Cancel(context.Background(), task); err != nil {
		t.Fatal(err)
	}
	for _, outcome := range []string{"completed", "failed", "released"} {
		if !s.report("key-1", worker, c.Token, fmt.Sprintf(`"outcome":%q`, outcome)) {
			t.Errorf("%s: the claim is not lost", outcome)
		}
	}
	if got := s.status(task, "first"); got != store.StatusCancelled {
		t.Errorf("the task is %s", got)
	}
}

func TestCoordinator_LimitsTheRequestsOfAKey(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	s.coordinator = s.startCoordinator(func(o *remote.Options) { o.RequestsPerSecond = 0.5 }) // a burst of 2
	ask := func(key string) int {
		status, _ := s.sendAs(key, http.MethodGet, "/pipeline", "")
		return status
	}
	got := []int{ask("key-1"), ask("key-1"), ask("key-1"), ask("key-2")}
	want := []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests, http.StatusOK}
	if !slices.Equal(got, want) {
		t.Errorf("the answers are %v, want %v", got, want)
	}
}

func TestCoordinator_ReadsFourLargeRequestsOfAKeyAtATime(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	large := func(worker store.ID) string {
		return fmt.Sprintf(`{"worker_id":%q,%s"held":[]}`, worker, strings.Repeat(" ", 2<<20))
	}
	worker, other := s.register("key-1"), s.register("key-2")
	var conns []rawConn
	for range 4 {
		conn := dialRaw(t, s.coordinator)
		fmt.Fprintf(conn, "POST /exchange HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer key-1\r\nContent-Length: %d\r\n\r\n{", 2<<20)
		conns = append(conns, conn)
	}
	waittest.Equal(t, "the large requests", 4, func() int { return s.LargeRequests("key-1") })
	fifth := make(chan string, 1)
	go func() { fifth <- s.post("key-1", "/exchange", large(worker)) }()
	if got := s.post("key-2", "/exchange", large(other)); got != "" {
		t.Errorf("a request of another key: %s", got)
	}
	s.exchange(worker, `"held":[]`) // a small one
	select {
	case got := <-fifth:
		t.Errorf("the fifth request was answered: %q", got)
	case <-time.After(200 * time.Millisecond): // an answer takes a few
	}
	conns[0].Close()
	if got := <-fifth; got != "" {
		t.Errorf("the fifth request: %s", got)
	}
}

func TestCoordinator_ShowsWorkersThePublicFormOfASource(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	s.coordinator = s.startCoordinator(func(o *remote.Options) {
		o.Source = func(source string) string { return strings.Replace(source, "secret", "…", 1) }
	})
	worker := s.register("key-1")
	s.submit("https://user:secret@media.example/clip.mp4")
	var out struct{ Claims []struct{ Source string } }
	waittest.Until(t, "there is a claim", func() bool {
		s.call("key-1", "/exchange", fmt.Sprintf(`{"worker_id":%q,"free_slots":{"first":1}}`, worker), &out)
		return len(out.Claims) == 1
	})
	if got := out.Claims[0].Source; got != "https://user:…@media.example/clip.mp4" {
		t.Errorf("the source is %q", got)
	}
}

func TestCoordinator_ReportsAResponseThatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	failures := make(chan error, 1)
	c := s.startCoordinator(func(o *remote.Options) {
		o.OnError = func(err error) {
			if err != nil {
				failures <- err
			}
		}
	})
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
	r.Header.Set("Authorization", "Bearer key-1")
	w := httptest.NewRecorder()
	c.Unencodable().ServeHTTP(w, r)
	if err := <-failures; w.Code != 500 || !strings.Contains(err.Error(), "encode response: ") {
		t.Errorf("the response is %d %s, the error %v", w.Code, w.Body, err)
	}
}
