package upload_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/upload"
	"github.com/cuelight/cuelight/store"
)

// submitTo submits an upload idempotently.
func submitTo(st *store.Store) func(context.Context, upload.Upload) (upload.Receipt, error) {
	return func(ctx context.Context, u upload.Upload) (upload.Receipt, error) {
		request := "upload:" + u.ID
		if u.RequestID != "" {
			request = u.RequestID
		}
		r, err := st.Submit(ctx, store.Submission{
			Source: u.Path, Params: u.Params, Priority: u.Priority, RequestID: request, UserID: u.Principal,
		})
		if errors.Is(err, store.ErrInvalid) || store.IsRejected(err) {
			return upload.Receipt{}, fmt.Errorf("%w: %w", upload.ErrRefused, err)
		}
		if errors.Is(err, store.ErrRequestIDTaken) {
			return upload.Receipt{}, fmt.Errorf("%w: %w", upload.ErrRequestIDTaken, err)
		}
		return upload.Receipt{Task: r.ID.String()}, err
	}
}

// sourceState queries the task of an upload.
func sourceState(st *store.Store) func(context.Context, upload.Upload) (upload.SourceState, error) {
	return func(ctx context.Context, u upload.Upload) (upload.SourceState, error) {
		id, err := store.ParseID(u.Task)
		if err != nil {
			return upload.SourceNeeded, err
		}
		task, err := st.Get(ctx, id)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return upload.TaskEnded, nil
		case err != nil:
			return upload.SourceNeeded, err
		}
		for _, s := range task.Stages {
			if s.Name == "ingest" && s.Status == store.StatusCompleted {
				return upload.SourceCopied, nil
			}
		}
		return upload.SourceNeeded, nil
	}
}

func TestCleanUp_SubmitsTheSameTaskAgain(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers))
	st := store.New(pool, store.Video())
	s := serve(t, upload.Options{OnComplete: submitTo(st), SourceState: sourceState(st)})
	url := s.create(3, "As", "ann", "Upload-Metadata", metadata("params", `{"a": 1}`, "priority", "3"))
	first := s.mustPatch(http.StatusNoContent, url, 0, strings.NewReader("abc"), "As", "ann").header.Get("Cuelight-Task")

	// A crash after the commit of the task and before its state was saved.
	file := filepath.Join(s.dir, "uploads", filepath.Base(url), "state.json")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, _, ok := strings.Cut(string(raw), `,"submitted_at"`)
	if err := os.WriteFile(file, []byte(before+"}"), 0o600); err != nil || !ok {
		t.Fatalf("%v: %s", err, raw)
	}
	if _, err := s.uploads.CleanUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := s.mustSend(http.StatusOK, "HEAD", url, nil, "As", "ann").header.Get("Cuelight-Task")
	if again != first || first == "" {
		t.Errorf("the first task is %q, the second %q", first, again)
	}
	var n int
	err = pool.QueryRow(t.Context(),
		"select count(*) from tasks where user_id = 'ann' and priority = 3 and params = '{\"a\": 1}'").Scan(&n)
	if err != nil || n != 1 {
		t.Errorf("there are %d such tasks, want 1; %v", n, err)
	}

	cleanUp := func(want int) {
		t.Helper()
		if done, err := s.uploads.CleanUp(t.Context()); err != nil || done.DeletedFinished != want {
			t.Errorf("CleanUp returned %+v, %v; want %d deleted", done, err, want)
		}
	}
	cleanUp(0)
	if _, err := pool.Exec(t.Context(), "update tasks set ingest_status = 'completed'"); err != nil {
		t.Fatal(err)
	}
	cleanUp(1)
	if left := s.entries(); len(left) > 0 {
		t.Errorf("remaining: %v", left)
	}
}
