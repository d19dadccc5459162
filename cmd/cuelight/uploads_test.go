package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/upload"
	"github.com/cuelight/cuelight/store"
)

// sent is an upload with a file.
func sent(t *testing.T, id, principal, content string) upload.Upload {
	t.Helper()
	path := filepath.Join(t.TempDir(), id)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return upload.Upload{ID: id, Path: path, Size: int64(len(content)), Principal: principal, RequestID: "film-17"}
}

// keyOf is the principal of a new API key.
func keyOf(t *testing.T, st *store.Store) string {
	t.Helper()
	key, _, err := st.CreateKey(t.Context(), "site", store.ScopeSubmit)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("key %s (%s)", key.Prefix, key.Name)
}

func TestUploadOfARevokedKey_BecomesNoTask(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers))
	st := store.New(pool, store.Video())
	guard, err := access.New(access.Options{Keys: st})
	if err != nil {
		t.Fatal(err)
	}
	key, text, err := st.CreateKey(t.Context(), "site", store.ScopeSubmit)
	if err != nil {
		t.Fatal(err)
	}
	var request context.Context
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", nil)
	r.Header.Set("Authorization", "Bearer "+text)
	guard.Identify(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { request = r.Context() })).ServeHTTP(httptest.NewRecorder(), r)
	u := sent(t, "a", access.From(request).Name, "abc")
	if err := stillOf(guard)(request); err != nil {
		t.Errorf("before: %v", err)
	}
	if _, err := st.RevokeKey(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	if err := stillOf(guard)(request); !errors.Is(err, upload.ErrRevoked) {
		t.Errorf("after: %v", err)
	}
	// A later hand-over, after a restart, has no request.
	if r, err := submitUpload(st)(t.Context(), u); !errors.Is(err, upload.ErrRefused) {
		t.Errorf("it became %+v, %v", r, err)
	}
	if tasks, err := st.List(t.Context(), store.ListQuery{Filter: store.Filter{}}); err != nil || len(tasks) != 0 {
		t.Errorf("there are %d tasks, %v", len(tasks), err)
	}
}

func TestRequestIDOfAnUpload_IsOfItsKeyAndItsBytes(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers))
	st := store.New(pool, store.Video())
	one, two, three := keyOf(t, st), keyOf(t, st), keyOf(t, st)
	hand := func(u upload.Upload) (upload.Upload, error) {
		t.Helper()
		r, err := submitUpload(st)(t.Context(), u)
		u.Task, u.Existed = r.Task, r.Existed
		return u, err
	}
	first, err := hand(sent(t, "a", one, "abc"))
	if err != nil || first.Existed {
		t.Fatal(first, err)
	}
	other, err := hand(sent(t, "b", two, "xyz"))
	if err != nil || other.Existed || other.Task == first.Task {
		t.Errorf("another key's became %+v, %v", other, err)
	}
	for _, content := range []string{"xyz", "abcd"} {
		if got, err := hand(sent(t, "c", one, content)); !errors.Is(err, upload.ErrRequestTaken) || got.Task != "" {
			t.Errorf("with %q it became %+v, %v", content, got, err)
		}
	}
	again, err := hand(sent(t, "d", one, "abc"))
	if err != nil || !again.Existed || again.Task != first.Task {
		t.Errorf("the same file again became %+v, %v", again, err)
	}
	// Once it is ingested, the uploaded file is gone.
	sum := sha256.Sum256([]byte("abc"))
	if _, err := pool.Exec(t.Context(), `insert into attempts (task_id, stage, attempt, outcome, token, worker_id, started_at, finished_at, result)
		values ($1, 'ingest', 1, 'completed', gen_random_uuid(), gen_random_uuid(), now(), now(), jsonb_build_object('bytes', 3, 'sha256', $2::text))`,
		first.Task, hex.EncodeToString(sum[:])); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(first.Path); err != nil {
		t.Fatal(err)
	}
	again, err = hand(sent(t, "e", one, "abc"))
	if err != nil || !again.Existed || again.Task != first.Task {
		t.Errorf("the same file later became %+v, %v", again, err)
	}
	if _, err := hand(sent(t, "f", one, "xyz")); !errors.Is(err, upload.ErrRequestTaken) {
		t.Errorf("another file later: %v", err)
	}
	if fate, err := fateOfUpload(st)(t.Context(), again); err != nil || fate != upload.SourceCopied {
		t.Errorf("the second copy is %v, %v", fate, err)
	}
	// An older version answered with a task that is not of this file.
	strange := sent(t, "g", three, "xyz")
	strange.Task = first.Task
	if fate, err := fateOfUpload(st)(t.Context(), strange); err != nil || fate != upload.SourceNeeded {
		t.Errorf("a stranger's file is %v, %v", fate, err)
	}
}
