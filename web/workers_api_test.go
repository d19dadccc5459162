package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

const workerAPI = api + "/worker"

// newCoordinator returns what remote workers talk to. It does not run, so that it claims for no
// request that waits.
func newCoordinator(t *testing.T, pool *pgxpool.Pool) http.Handler {
	t.Helper()
	p, err := video.Pipeline(video.Stages(video.Config{})...)
	if err != nil {
		t.Fatal(err)
	}
	return remote.NewCoordinator(remote.Options{
		Pool: pool, Pipeline: p, Files: &claimFiles{input: "film", output: make(map[string]string)},
		Authenticate: func(r *http.Request) (string, error) { return access.PrincipalOf(r.Context()).Name, nil },
	})
}

// claimFiles has one input for every claim, and keeps the outputs of all.
type claimFiles struct {
	input string

	mu     sync.Mutex
	output map[string]string
}

func (f *claimFiles) OpenInput(_ context.Context, _ engine.Claim, name string) (io.ReadSeekCloser, error) {
	if name != "dir/input" {
		return nil, fs.ErrNotExist
	}
	return struct {
		*strings.Reader
		io.Closer
	}{strings.NewReader(f.input), io.NopCloser(nil)}, nil
}

func (f *claimFiles) OutputSize(_ context.Context, _ engine.Claim, name string) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name != "dir/output" {
		return 0, &remote.RefusedError{Reason: "there is no such output"}
	}
	return int64(len(f.output[name])), nil
}

func (f *claimFiles) WriteOutput(_ context.Context, _ engine.Claim, name string, _, _ int64, _ string, from io.Reader) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	text, err := io.ReadAll(from)
	f.output[name] += string(text)
	return err
}

func (f *claimFiles) Accept(_ context.Context, _ engine.Claim, result json.RawMessage) (json.RawMessage, error) {
	return result, nil
}

// remoteWorker makes the requests of a worker without a database.
type remoteWorker struct {
	b       *testServer
	id, key string
}

func (b *testServer) registerRemote() remoteWorker {
	b.t.Helper()
	w := remoteWorker{b: b, key: b.key("work")}
	var out struct {
		Worker string `json:"worker_id"`
	}
	w.post("/register", `{"protocol": 1, "pipeline": "video", "name": "one", "host": "studio", "pid": 7, "version": "v1",
		"lease_s": 36, "process_identity": "", "capabilities": {"labels": ["gpu"]}, "metadata": {"room": 7}}`).wantStatus(200, &out)
	w.id = out.Worker
	return w
}

func (w remoteWorker) do(method, path, body string, header ...string) testResponse {
	w.b.t.Helper()
	c := call{method: method, path: workerAPI + path, as: w.key, header: http.Header{}}
	if body != "" {
		c.body = strings.ReplaceAll(body, "WORKER", w.id)
	}
	for i := 0; i < len(header); i += 2 {
		c.header.Set(header[i], header[i+1])
	}
	got := w.b.do(c)
	if got.status < 300 && method == "POST" {
		checkRequestAgainstOpenAPI(w.b.t, method, strings.Split(c.path, "?")[0], c.body.(string))
	}
	return got
}

func (w remoteWorker) post(path, body string) testResponse {
	w.b.t.Helper()
	return w.do("POST", path, body)
}

// claim submits a task, completes its first stage, and claims one of the next.
func (w remoteWorker) claim(stage string) (task store.ID, token string) {
	w.b.t.Helper()
	task = w.b.submit("film.mp4")
	claim := func(stage string) string {
		w.b.t.Helper()
		var out struct {
			Claims []struct{ Stage, Token string }
		}
		w.post("/exchange", `{"worker_id": "WORKER", "free_slots": {"`+stage+`": 1}}`).wantStatus(200, &out)
		if len(out.Claims) != 1 || out.Claims[0].Stage != stage {
			w.b.t.Fatalf("the claims of %s are %v", stage, out.Claims)
		}
		return out.Claims[0].Token
	}
	w.post("/exchange", `{"worker_id": "WORKER", "reports": [
		{"token": "`+claim("ingest")+`", "outcome": "completed", "result": {"seconds": 7}}]}`).wantStatus(200, nil)
	return task, claim(stage)
}

func TestWorkerAPI_AnswersAsDescribed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.registerRemote()
	task, token := w.claim("metadata")
	var second struct {
		Worker string `json:"worker_id"`
	}
	w.post("/register", `{"protocol": 1, "pipeline": "video"}`).wantStatus(200, &second)
	claim := "/claims/" + token
	report := func(outcome string) string {
		return `{"worker_id": "WORKER", "reports": [{"token": "` + token + `", ` + outcome + `}]}`
	}
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/pipeline", "", 200},
		{"GET", "/workers", "", 200},
		{"POST", "/heartbeat", `{"worker_id": "WORKER", "running": [{"token": "` + token + `", "started": true, "percent": 7, "speed": 1,
			"eta_s": 7, "note": "encoding", "progressed": true}, {"token": "` + w.id + `", "started": false}]}`, 200},
		{"POST", "/claims/check", `{"worker_id": "WORKER", "tokens": ["` + token + `", "` + w.id + `"]}`, 200},
		{"GET", claim + "/results/ingest", "", 200},
		{"GET", claim + "/results/publish", "", 404},
		{"GET", claim + "/input/dir/input", "", 200},
		{"GET", claim + "/input/dir/other", "", 404},
		{"HEAD", claim + "/output/dir/output", "", 204},
		{"HEAD", claim + "/output/dir/other", "", 422},
		{"PUT", claim + "/output/dir/output", "film", 400},
		{"POST", "/exchange", `{"worker_id": "WORKER", "sequence": 1, "held": [], "free_slots": {"metadata": 1}, "wait_s": 0.01}`, 200},
		{"POST", "/exchange", `{"worker_id": "WORKER", "free_slots": {}, "wait": 1}`, 400},
		{"POST", "/exchange", `{"worker_id": "WORKER", "free_slots": {"bake": 1}}`, 422},
		{"POST", "/exchange", `{"worker_id": "WORKER", "free_slots": {}, "reports": [{"token": "` + w.id + `", "outcome": "released"}]}`, 200},
		{"POST", "/exchange", fmt.Sprintf(`{"worker_id": "WORKER", "held": [], "free_slots": {}, "reports": [
			{"task_id": %q, "token": %q, "outcome": "completed"}]}`, task, w.id), 200},
		{"POST", "/exchange", report(`"outcome": "released", "error": "the disk is full", "retry_in_s": 0`), 200},
		{"POST", "/exchange", report(`"outcome": "completed", "result": 1`), 200},
		{"POST", "/exchange", report(`"outcome": "failed", "error": "no", "error_class": "error", "permanent": true, "retry_in_s": 7`), 200},
		{"POST", "/drain", `{"worker_id": "WORKER"}`, 204},
		{"POST", "/workers/expire", `{"worker_ids": ["` + w.key + `"]}`, 400},
		{"POST", "/workers/expire", `{"worker_ids": ["` + second.Worker + `"]}`, 200},
		{"POST", "/heartbeat", `{"worker_id": "` + token + `", "running": []}`, 409},
		{"POST", "/deregister", `{"worker_id": "WORKER"}`, 204},
		{"POST", "/deregister", `{"worker_id": "WORKER"}`, 409},
		{"POST", "/register", `{"protocol": 7, "pipeline": "video"}`, 400},
		{"POST", "/register", `{"protocol": 1, "pipeline": "audio"}`, 422},
	} {
		if got := w.do(c.method, c.path, c.body); got.status != c.status {
			t.Errorf("%s %s: status %d, want %d: %s", c.method, c.path, got.status, c.status, got.body)
		}
	}
}

func TestWorkerAPI_CarriesFilesAsDescribed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.registerRemote()
	_, token := w.claim("metadata")
	input, output := "/claims/"+token+"/input/dir/input", "/claims/"+token+"/output/dir/output"
	if got := w.do("GET", input, "", "Range", "bytes=1-2"); got.status != 206 || string(got.body) != "il" {
		t.Errorf("the range is %d %q", got.status, got.body)
	}
	if got := w.do("GET", input, "", "Range", "bytes=4-"); got.status != 416 {
		t.Errorf("the range after the end is %d", got.status)
	}
	if got := w.do("PUT", output, "fi", "Content-Range", "bytes 0-1/4"); got.status != 204 || got.header.Get("Upload-Offset") != "2" {
		t.Errorf("the piece is answered with %d, offset %s", got.status, got.header.Get("Upload-Offset"))
	}
	got := w.do("PUT", output, "fi", "Content-Range", "bytes 0-1/4").wantProblem(409, "upload-offset")
	if got.header.Get("Upload-Offset") != "2" {
		t.Errorf("the repeated piece is answered with offset %s", got.header.Get("Upload-Offset"))
	}
	w.do("PUT", output, "lm", "Content-Range", "bytes 2-3/4").wantStatus(204, nil)
	if got := w.do("HEAD", output, ""); got.header.Get("Upload-Offset") != "4" {
		t.Errorf("the size is %s", got.header.Get("Upload-Offset"))
	}
}

func TestWorkerAPI_NeedsTheScopeWork(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, scope := range []string{"read", "submit"} {
		b.do(call{method: "GET", path: workerAPI + "/pipeline", as: b.key(scope)}).wantProblem(403, "forbidden")
	}
	b.do(call{method: "GET", path: workerAPI + "/pipeline", as: "-"}).wantProblem(401, "unauthenticated")
	b.do(call{method: "GET", path: workerAPI + "/pipeline", as: b.key("work")}).wantStatus(200, nil)
}
