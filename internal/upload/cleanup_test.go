package upload_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/upload"
)

func TestCleanUp_SubmitsAnUploadWhoseSubmissionFailed(t *testing.T) {
	t.Parallel()
	down := errors.New("the database is down")
	var reported atomic.Pointer[error]
	s := serve(t, upload.Options{OnError: func(_ string, err error) { reported.Store(&err) }})
	s.submissions.failWith(down)
	url := s.create(3)
	a := s.mustPatch(http.StatusNoContent, url, 0, strings.NewReader("abc"))
	if a.header.Get("Cuelight-Task") != "" || reported.Load() == nil || !errors.Is(*reported.Load(), down) {
		t.Errorf("headers are %v", a.header)
	}
	if strings.Contains(fmt.Sprint(a), "database") {
		t.Errorf("the client got %v", a)
	}
	if done, err := s.uploads.CleanUp(t.Context()); !errors.Is(err, down) || done.Submitted != 0 {
		t.Errorf("CleanUp returned %+v, %v", done, err)
	}
	s.submissions.failWith(nil)
	for _, want := range []int{1, 0} {
		if done, err := s.uploads.CleanUp(t.Context()); err != nil || done.Submitted != want {
			t.Errorf("CleanUp returned %+v, %v; want %d", done, err, want)
		}
	}
	s.checkFile(s.submissions.only(t), []byte("abc"))
	if a := s.mustSend(http.StatusOK, "HEAD", url, nil); a.header.Get("Cuelight-Task") == "" {
		t.Errorf("HEAD returned %v", a.header)
	}
}

func TestPatch_SubmitsAgainAfterAFailedSubmission(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	s.submissions.failWith(errors.New("the database is down"))
	url := s.create(3)
	s.mustPatch(http.StatusNoContent, url, 0, strings.NewReader("abc"))
	s.submissions.failWith(nil)
	if a := s.mustPatch(http.StatusNoContent, url, 3, nil); a.header.Get("Cuelight-Task") == "" {
		t.Errorf("headers are %v", a.header)
	}
	s.submissions.only(t)
}

func TestUpload_IsDeletedIfRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	s.submissions.failWith(fmt.Errorf("%w: no such profile", upload.ErrRefused))
	url := s.create(3)
	a := s.mustPatch(http.StatusUnprocessableEntity, url, 0, strings.NewReader("abc"))
	if !strings.Contains(a.body, "no such profile") {
		t.Errorf("the body is %s", a.body)
	}
	s.mustSend(http.StatusUnprocessableEntity, "PUT", "/uploads/a.mp4", strings.NewReader("abc"))
	if left := s.entries(); len(left) > 0 {
		t.Errorf("remaining: %v", left)
	}
}

func TestCleanUp_DeletesAFileItsTaskNoLongerNeeds(t *testing.T) {
	t.Parallel()
	var fate atomic.Int32
	var queried atomic.Pointer[upload.Upload]
	broken := errors.New("unknown")
	s := serve(t, upload.Options{
		TaskEndedRetention: time.Hour, SourceState: func(_ context.Context, u upload.Upload) (upload.SourceState, error) {
			queried.Store(&u)
			if f := fate.Load(); f >= 0 {
				return upload.SourceState(f), nil
			}
			return upload.SourceCopied, broken
		},
	})
	cleanUp := func(f upload.SourceState, want int, wantErr error) {
		t.Helper()
		fate.Store(int32(f))
		done, err := s.uploads.CleanUp(t.Context())
		if done.DeletedFinished != want || !errors.Is(err, wantErr) {
			t.Errorf("state %d: CleanUp returned %+v, %v; want %d deleted", f, done, err, want)
		}
	}
	url := s.create(3)
	s.mustPatch(http.StatusNoContent, url, 0, strings.NewReader("abc"))
	u := s.submissions.only(t)
	cleanUp(upload.SourceNeeded, 0, nil)
	if got := queried.Load(); got.Task != "task-of-"+u.ID || got.Path != u.Path || got.Size != 3 {
		t.Errorf("queried %+v", got)
	}
	cleanUp(-1, 0, broken)
	cleanUp(upload.TaskEnded, 0, nil)
	cleanUp(upload.TaskEnded, 0, nil)
	s.backdateTaskEnd(url, 2*time.Hour)
	cleanUp(upload.SourceNeeded, 0, nil) // the task exists again
	cleanUp(upload.TaskEnded, 0, nil)
	s.checkFile(u, []byte("abc"))
	s.backdateTaskEnd(url, 2*time.Hour)
	cleanUp(upload.TaskEnded, 1, nil)
	if left := s.entries(); len(left) > 0 {
		t.Errorf("remaining: %v", left)
	}
	url = s.create(3)
	s.mustPatch(http.StatusNoContent, url, 0, strings.NewReader("abc"))
	cleanUp(upload.SourceCopied, 1, nil)
	s.mustSend(http.StatusNotFound, "HEAD", url, nil)
}

// backdateTaskEnd moves the time when the task was found to have ended to the past.
func (s *testServer) backdateTaskEnd(url string, long time.Duration) {
	s.t.Helper()
	file := filepath.Join(s.dir, "uploads", filepath.Base(url), "state.json")
	raw, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(raw), `"task_gone_since":"`)
	if !ok {
		s.t.Fatalf("the task has not ended: %s", raw)
	}
	since, _, _ := strings.Cut(after, `"`)
	then := time.Now().Add(-long).UTC().Format(time.RFC3339)
	if err := os.WriteFile(file, []byte(strings.Replace(string(raw), since, then, 1)), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func TestCleanUp_DeletesNoFinishedFileByDefault(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	url := s.create(3)
	s.mustPatch(http.StatusNoContent, url, 0, strings.NewReader("abc"))
	if done, err := s.uploads.CleanUp(t.Context()); err != nil || done != (upload.CleanUpResult{}) {
		t.Errorf("CleanUp returned %+v, %v", done, err)
	}
	s.checkFile(s.submissions.only(t), []byte("abc"))
}

func TestCleanUp_DeletesOnlySubmittedUploads(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{SourceState: func(context.Context, upload.Upload) (upload.SourceState, error) {
		return upload.SourceCopied, nil
	}})
	cleanUp := func(name string, want int, wantErr error) {
		t.Helper()
		if done, err := s.uploads.CleanUp(t.Context()); done.DeletedFinished != want || !errors.Is(err, wantErr) {
			t.Errorf("%s: CleanUp returned %+v, %v; want %d deleted", name, done, err, want)
		}
	}
	url := s.create(3)
	cleanUp("unfinished", 0, nil)
	later := errors.New("later")
	s.submissions.failWith(later)
	s.mustPatch(http.StatusNoContent, url, 0, strings.NewReader("abc"))
	cleanUp("not submitted", 0, later)
	s.submissions.failWith(nil)
	s.mustPatch(http.StatusNoContent, url, 3, nil)
	cleanUp("submitted", 1, nil)
	if left := s.entries(); len(left) > 0 {
		t.Errorf("remaining: %v", left)
	}
}

func TestCleanUp_CompletesAnInterruptedDeletion(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	url := s.create(3)
	dir := filepath.Join(s.dir, "uploads", filepath.Base(url))
	if err := os.Remove(filepath.Join(dir, "state.json")); err != nil {
		t.Fatal(err)
	}
	s.mustSend(http.StatusNotFound, "HEAD", url, nil)
	if _, err := s.uploads.CleanUp(t.Context()); err != nil || len(s.entries()) != 1 {
		t.Errorf("deleted a new directory: %v", err)
	}
	then := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(dir, then, then); err != nil {
		t.Fatal(err)
	}
	if done, err := s.uploads.CleanUp(t.Context()); err != nil || done.Expired != 1 || len(s.entries()) != 0 {
		t.Errorf("CleanUp returned %+v, %v", done, err)
	}
}

func TestCleanUp_IgnoresOtherFiles(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	outside := filepath.Join(s.dir, "outside")
	link := filepath.Join(s.dir, "uploads", strings.Repeat("B", 26))
	for _, err := range []error{
		os.Mkdir(outside, 0o700),
		os.WriteFile(filepath.Join(outside, "state.json"), []byte(`{"length":3,"principal":"","metadata":{}}`), 0o600),
		os.WriteFile(filepath.Join(outside, "part"), []byte("ab"), 0o600),
		os.Symlink(outside, link),
		os.WriteFile(filepath.Join(s.dir, "uploads", "README"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	a, err := s.send("HEAD", "/uploads/"+filepath.Base(link), nil)
	if err != nil || a.status == http.StatusOK {
		t.Errorf("a link out of the directory was followed: %d %v", a.status, err)
	}
	_, _ = s.uploads.CleanUp(t.Context())
	if _, err := os.Stat(filepath.Join(outside, "part")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "uploads", "README")); err != nil {
		t.Error(err)
	}
}

func TestUpload_IsStoredBeforeItIsSubmittedAndReleasedBeforeItIsDeleted(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex // of the rest
	var calls []string
	var failing error
	call := func(name string) func(context.Context, upload.Upload) error {
		return func(_ context.Context, u upload.Upload) error {
			mu.Lock()
			defer mu.Unlock()
			if _, err := os.Stat(u.Path); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			calls = append(calls, name)
			return failing
		}
	}
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		failing = err
	}
	down := errors.New("the bucket is down")
	s := serve(t, upload.Options{
		Store: call("store"), Release: call("release"),
		SourceState: func(context.Context, upload.Upload) (upload.SourceState, error) { return upload.SourceCopied, nil },
	})
	fail(down)
	url := s.create(3)
	s.mustPatch(http.StatusNoContent, url, 0, strings.NewReader("abc"))
	if all := s.submissions.all(); len(all) > 0 {
		t.Errorf("it was submitted before it was stored: %+v", all)
	}
	fail(nil)
	s.mustCleanUp(1, 1)
	s.submissions.only(t)
	if got := strings.Join(calls, " "); got != "store store release" {
		t.Errorf("the calls were %s", got)
	}
	// Space that cannot be released stays.
	s.mustSend(http.StatusCreated, "PUT", "/uploads/a.mp4", strings.NewReader("abc"))
	fail(down)
	if done, err := s.uploads.CleanUp(t.Context()); !errors.Is(err, down) || len(s.entries()) == 0 {
		t.Errorf("CleanUp returned %+v, %v", done, err)
	}
	fail(nil)
	if _, err := s.uploads.CleanUp(t.Context()); err != nil || len(s.entries()) > 0 {
		t.Errorf("CleanUp returned %v, and left %v", err, s.entries())
	}
}
