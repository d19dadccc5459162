package video

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
)

// remoteSite is a coordinator with a database and directories.
type remoteSite struct {
	*store.Store
	Config
	t    *testing.T
	pool *pgxpool.Pool
	url  string
	http *http.Client

	files *RemoteFiles

	mu       sync.Mutex // guards the rest
	revoked  map[string]bool
	failures []error // that the coordinator took for those of the database
	refusals []string
}

func newRemoteSite(t *testing.T) *remoteSite {
	t.Helper()
	return newRemoteSiteOver(t, nil)
}

// newRemoteSiteOver is newRemoteSite with a bucket for data, unless that is nil.
func newRemoteSiteOver(t *testing.T, bucket *Bucket) *remoteSite {
	t.Helper()
	if clips.picture == "" {
		t.Skip("there is no ffmpeg here")
	}
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers))
	s := &remoteSite{
		Store: store.New(pool, store.Video()), t: t, pool: pool, revoked: make(map[string]bool),
		Config: Config{DataDir: t.TempDir(), PublishDir: t.TempDir(), Bucket: bucket, Tools: testTools},
	}
	s.files = NewRemoteFiles(s.Config, s.Result)
	s.files.FromBucket = true
	server := s.startCoordinator(s.files)
	s.url, s.http = server.URL, server.Client()
	// A redirect would hide what the coordinator answers.
	s.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s
}

// startCoordinator starts a coordinator, which runs until the test ends.
func (s *remoteSite) startCoordinator(files remote.Files) *httptest.Server {
	s.t.Helper()
	c := remote.NewCoordinator(remote.Options{
		Pool: s.pool, Pipeline: pipelineOf(s.t, Stages(s.Config)), Authenticate: s.authenticate, Stages: RemoteStageNames(),
		Files: files,
		OnRefused: func(_ store.ID, _, reason string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.refusals = append(s.refusals, reason)
		},
		OnError: func(err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if err != nil {
				s.failures = append(s.failures, err)
			}
		},
	})
	server := httptest.NewServer(c)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

func pipelineOf(t *testing.T, list []stages.Stage) *stages.Pipeline {
	t.Helper()
	p, err := Pipeline(list...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// authenticate accepts the keys that begin with "key-", unless they were revoked.
func (s *remoteSite) authenticate(r *http.Request) (string, error) {
	key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	defer s.mu.Unlock()
	if !strings.HasPrefix(key, "key-") || s.revoked[key] {
		return "", errors.New("the key is not valid")
	}
	return key, nil
}

func (s *remoteSite) revoke(key string, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revoked[key] = is
}

// run runs a Runner until the test ends, or stop is called.
func (s *remoteSite) run(r stages.Runner) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Errorf("run: %v", err)
		}
	})
	s.t.Cleanup(stop)
	return stop
}

// workLocally starts a worker with the database that leaves some stages to others.
func (s *remoteSite) workLocally(leave ...string) (stop func()) {
	s.t.Helper()
	list := Stages(s.Config)
	for i := range list {
		for _, name := range leave {
			if list[i].Name == name {
				list[i].Slots = -1
			}
		}
	}
	return s.run(stages.Runner{Pool: s.pool, Pipeline: pipelineOf(s.t, list)})
}

// workRemotely starts a worker that has only an address and a key.
func (s *remoteSite) workRemotely(url, key string) (stop func()) {
	s.t.Helper()
	return s.workRemotelyWith(url, key, testTools)
}

func (s *remoteSite) workRemotelyWith(url, key string, tools Tools) (stop func()) {
	s.t.Helper()
	return s.workRemotelyOver(remote.NewTransport(), url, key, tools)
}

func (s *remoteSite) workRemotelyOver(
	transport *http.Transport, url, key string, tools Tools, change ...func(list []stages.Stage),
) (stop func()) {
	s.t.Helper()
	s.t.Cleanup(transport.CloseIdleConnections)
	client, err := remote.NewClient(remote.ClientOptions{
		URL: url, Key: key, Graph: store.Video(), HTTP: &http.Client{Transport: transport},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	c := Config{DataDir: s.t.TempDir(), Tools: tools}
	list := RemoteStages(c, client, RemoteStageNames())
	for _, do := range change {
		do(list)
	}
	p := pipelineOf(s.t, list)
	return s.run(stages.Runner{Pipeline: p, Backend: client.Backend(), Wakes: client.Wakes()})
}

func (s *remoteSite) submit(source string) store.ID {
	s.t.Helper()
	return s.submitWith(source, "{}")
}

func (s *remoteSite) submitWith(source, params string) store.ID {
	s.t.Helper()
	r, err := s.Submit(context.Background(), store.Submission{Source: source, Params: json.RawMessage(params)})
	if err != nil {
		s.t.Fatal(err)
	}
	return r.ID
}

// waitPublished waits until a task is published, and returns the results of its stages.
func (s *remoteSite) waitPublished(task store.ID) (tr Transcode, p Publish) {
	s.t.Helper()
	waittest.Until(s.t, "the task is finished", func() bool {
		got, err := s.Get(context.Background(), task)
		if err != nil {
			s.t.Fatal(err)
		}
		return got.IsFinished(store.Video())
	})
	for stage, result := range map[string]any{transcodeStage: &tr, publishStage: &p} {
		raw, err := s.Result(context.Background(), task, stage)
		if err == nil {
			err = json.Unmarshal(raw, result)
		}
		if err != nil {
			history, _ := s.History(context.Background(), task)
			s.t.Fatalf("result of %s: %v; the history is %+v", stage, err, history)
		}
	}
	return tr, p
}

// reply is what the coordinator answered.
type reply struct {
	status int
	kind   string // of the problem; empty for none
	body   []byte
	header http.Header
}

// send sends a request, whose length is declared as the header Content-Length says.
func (s *remoteSite) send(method, key, path string, body io.Reader, header http.Header) reply {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	r.Header.Set("Authorization", "Bearer "+key)
	response, err := s.http.Do(r)
	if err != nil {
		return reply{kind: "connection ended"}
	}
	defer response.Body.Close()
	out := reply{status: response.StatusCode, header: response.Header}
	out.body, _ = io.ReadAll(response.Body)
	if out.status >= 300 {
		var p struct{ Type string }
		_ = json.Unmarshal(out.body, &p)
		out.kind = strings.TrimPrefix(p.Type, problem.TypePrefix)
	}
	return out
}

// post sends JSON that must be accepted, and decodes the answer.
func (s *remoteSite) post(key, path, body string, out any) {
	s.t.Helper()
	r := s.send("POST", key, path, strings.NewReader(body), nil)
	if r.status >= 300 {
		s.t.Fatalf("%s: %d %s", path, r.status, r.body)
	}
	if err := json.Unmarshal(r.body, out); err != nil {
		s.t.Fatal(err)
	}
}

// snapshot lists what is in the directories, without the unfinished directories of attempts.
func (s *remoteSite) snapshot() string {
	s.t.Helper()
	var all strings.Builder
	for _, dir := range []string{filepath.Dir(s.DataDir), filepath.Dir(s.PublishDir)} {
		err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d, ok := parseDirName(e.Name()); ok && d.unfinished {
				return fs.SkipDir
			}
			all.WriteString(file)
			if !e.IsDir() {
				content, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				all.Write(content)
			}
			all.WriteString("\n")
			return nil
		})
		if err != nil {
			s.t.Fatal(err)
		}
	}
	return all.String()
}
