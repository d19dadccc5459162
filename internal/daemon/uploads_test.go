package daemon

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
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/inbox"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/profiles"
	"github.com/cuelight/cuelight/internal/storage/s3test"
	"github.com/cuelight/cuelight/internal/upload"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// sent returns an upload with a file.
func sent(t *testing.T, id, principal, content string) upload.Upload {
	t.Helper()
	path := filepath.Join(t.TempDir(), id)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return upload.Upload{ID: id, Path: path, Size: int64(len(content)), Principal: principal, RequestID: "film-17"}
}

// keyOf returns the principal of a new API key.
func keyOf(t *testing.T, st *store.Store) string {
	t.Helper()
	key, _, err := access.NewKeyStore(st.DB()).CreateKey(t.Context(), "site", access.Submit.String())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("key %s (%s)", key.Prefix, key.Name)
}

// requestOf returns the context of a request with a key.
func requestOf(t *testing.T, guard *access.Guard, key string) (request context.Context) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", nil)
	r.Header.Set("Authorization", "Bearer "+key)
	guard.Identify(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		request = r.Context()
	})).ServeHTTP(httptest.NewRecorder(), r)
	return request
}

func TestUpload_WithARevokedKeyIsRefused(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL))
	st := store.New(pool, store.Video())
	guard, err := access.New(access.Options{Keys: access.NewKeyStore(st.DB())})
	if err != nil {
		t.Fatal(err)
	}
	key, text, err := access.NewKeyStore(st.DB()).CreateKey(t.Context(), "site", access.Submit.String())
	if err != nil {
		t.Fatal(err)
	}
	request := requestOf(t, guard, text)
	u := sent(t, "a", access.PrincipalOf(request).Name, "abc")
	if err := stillAuthorized(guard)(request); err != nil {
		t.Errorf("before: %v", err)
	}
	if isRevoked(st)(t.Context(), u.Principal) || isRevoked(st)(t.Context(), "admin") {
		t.Error("it is revoked before")
	}
	if _, err := access.NewKeyStore(st.DB()).RevokeKey(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	if err := stillAuthorized(guard)(request); !errors.Is(err, upload.ErrRevoked) {
		t.Errorf("after: %v", err)
	}
	if !isRevoked(st)(t.Context(), u.Principal) {
		t.Error("it is not revoked after")
	}
	// After a restart there is no request.
	if r, err := submitUpload(st, nil)(t.Context(), u); !errors.Is(err, upload.ErrRefused) {
		t.Errorf("the upload is %+v, %v", r, err)
	}
	if tasks, err := st.List(t.Context(), store.ListQuery{Filter: store.Filter{}}); err != nil || len(tasks) != 0 {
		t.Errorf("there are %d tasks, %v", len(tasks), err)
	}
}

func TestUpload_RequestIDBelongsToTheKeyAndTheBytes(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL))
	st := store.New(pool, store.Video())
	one, two, three := keyOf(t, st), keyOf(t, st), keyOf(t, st)
	hand := func(u upload.Upload) (upload.Upload, error) {
		t.Helper()
		r, err := submitUpload(st, nil)(t.Context(), u)
		u.Task, u.Existed = r.Task, r.Existed
		return u, err
	}
	first, err := hand(sent(t, "a", one, "abc"))
	if err != nil || first.Existed {
		t.Fatal(first, err)
	}
	other, err := hand(sent(t, "b", two, "xyz"))
	if err != nil || other.Existed || other.Task == first.Task {
		t.Errorf("another key's upload is %+v, %v", other, err)
	}
	for _, content := range []string{"xyz", "abcd"} {
		if got, err := hand(sent(t, "c", one, content)); !errors.Is(err, upload.ErrRequestIDTaken) || got.Task != "" {
			t.Errorf("the upload of %q is %+v, %v", content, got, err)
		}
	}
	again, err := hand(sent(t, "d", one, "abc"))
	if err != nil || !again.Existed || again.Task != first.Task {
		t.Errorf("the same file again is %+v, %v", again, err)
	}
	// Once it is ingested, the uploaded file is gone.
	sum := sha256.Sum256([]byte("abc"))
	if _, err := pool.Exec(t.Context(), `
		insert into attempts (task_id, stage, attempt, outcome, token, worker_id, started_at, finished_at, result)
		values ($1, 'ingest', 1, 'completed', gen_random_uuid(), gen_random_uuid(), now(), now(),
		        jsonb_build_object('bytes', 3, 'sha256', $2::text))`,
		first.Task, hex.EncodeToString(sum[:])); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(first.Path); err != nil {
		t.Fatal(err)
	}
	again, err = hand(sent(t, "e", one, "abc"))
	if err != nil || !again.Existed || again.Task != first.Task {
		t.Errorf("the same file later is %+v, %v", again, err)
	}
	if _, err := hand(sent(t, "f", one, "xyz")); !errors.Is(err, upload.ErrRequestIDTaken) {
		t.Errorf("another file later: %v", err)
	}
	if state, err := uploadSourceState(st, nil)(t.Context(), again); err != nil || state != upload.SourceCopied {
		t.Errorf("the second copy is %v, %v", state, err)
	}
	// An older version answered with a task that is not of this file.
	foreign := sent(t, "g", three, "xyz")
	foreign.Task = first.Task
	if state, err := uploadSourceState(st, nil)(t.Context(), foreign); err != nil || state != upload.SourceNeeded {
		t.Errorf("the file of another key is %v, %v", state, err)
	}
}

// The audit log names the principal that uploaded; the task belongs to the user of the
// upload, or else to the principal.
func TestUploads_AreAuditedAndHaveAUser(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL))
	st := store.New(pool, store.Video())
	key := keyOf(t, st)
	for id, c := range map[string]struct{ user, want string }{"a": {"", key}, "b": {"ann", "ann"}} {
		u := upload.Upload{ID: id, Path: "/data/uploads/" + id, Name: "holiday.mp4", Size: 7, UserID: c.user, Principal: key,
			UserContext: []byte(`{"order": 17}`)}
		for range 2 {
			r, err := submitUpload(st, nil)(t.Context(), u)
			if err != nil {
				t.Fatal(err)
			}
			rows, err := pool.Query(t.Context(), `select user_id || '|' || actor || '|' || action || '|' || detail::text || '|' || user_context
  from tasks join cuelight_audit on target = tasks.id::text where tasks.id::text = $1`, r.Task)
			if err != nil {
				t.Fatal(err)
			}
			got, err := pgx.CollectRows(rows, pgx.RowTo[string])
			want := c.want + `|` + key + `|submit|{"name": "holiday.mp4", "bytes": 7, "upload": "` + id + `"}|{"order": 17}`
			if err != nil || len(got) != 1 || got[0] != want {
				t.Errorf("there is %q, %v, want %q", got, err, want)
			}
		}
	}
}

func TestUpload_IsNeededWhenItsCopyWasMoved(t *testing.T) {
	t.Parallel()
	st := store.New(pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL)), store.Video())
	old, proxy := newBucket(t)
	u := sent(t, "a", keyOf(t, st), "abc")
	r, err := submitUpload(st, old)(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	u.Task = r.Task
	env := map[string]string{
		"AWS_ENDPOINT_URL": proxy.Endpoint, "AWS_ACCESS_KEY_ID": s3test.AccessKey, "AWS_SECRET_ACCESS_KEY": s3test.SecretKey,
	}
	moved, err := video.OpenBucket("s3://videos/moved", func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	defer moved.Close()
	if err := storeUpload(moved)(t.Context(), u); err != nil { // as a move does
		t.Fatal(err)
	}
	for _, bucket := range []*video.Bucket{moved, nil} { // nil: to a directory
		if state, err := uploadSourceState(st, bucket)(t.Context(), u); err != nil || state != upload.SourceNeeded {
			t.Errorf("before ingest the upload is %v, %v", state, err)
		}
		// The process was killed before it recorded the task.
		if again, err := submitUpload(st, bucket)(t.Context(), u); err != nil || again.Task != r.Task {
			t.Errorf("submitted again, the upload is %+v, %v", again, err)
		}
	}
}

// The settings of an upload are those of the profile when it began, even if the profile is removed while it is sent.
func TestUploads_ResolveTheirProfileWhenTheyBegin(t *testing.T) {
	t.Parallel()
	st := store.New(pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL)), store.Video())
	p := profiles.New(st)
	if _, err := p.Set(t.Context(), "web", []byte(`{"quality": 30, "requires": ["gpu"]}`), "ann"); err != nil {
		t.Fatal(err)
	}
	u := sent(t, "a", "", "abc")
	u.Name, u.Params, u.Placement = "f.mp4", []byte(`{"profile": "web"}`), []byte(`{"metadata": {"requires": ["m"]}}`)
	if err := prepareUpload(st, 0)(t.Context(), &u); err != nil {
		t.Fatal(err)
	}
	if err := p.Remove(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	r, err := submitUpload(st, nil)(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	id, err := store.ParseID(r.Task)
	if err != nil {
		t.Fatal(err)
	}
	task, err := st.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	params, err := video.ParseParams(task.Params)
	if err != nil || params.Quality != 30 || params.Title != "f.mp4" || len(task.Placements()) != 2 ||
		task.Placements()["transcode"].Requires[0] != "gpu" {
		t.Errorf("the task has %s and %+v, %v", task.Params, task.Placements(), err)
	}
	for _, wrong := range []upload.Upload{
		{Params: []byte(`{"profile": "web"}`)}, {Params: []byte(`{"qualty": 1}`)}, {Placement: []byte(`{"transcode": 7}`)},
	} {
		if err := prepareUpload(st, 0)(t.Context(), &wrong); !errors.Is(err, upload.ErrRefused) {
			t.Errorf("%s, %s: %v", wrong.Params, wrong.Placement, err)
		}
		wrong.ID, wrong.Path, wrong.Size = "b", u.Path, 3
		if _, err := submitUpload(st, nil)(t.Context(), wrong); !errors.Is(err, upload.ErrRefused) {
			t.Errorf("submit %s, %s: %v", wrong.Params, wrong.Placement, err)
		}
	}
}

func TestUploads_BeyondTheLimitOfTheirUserDoNotBegin(t *testing.T) {
	t.Parallel()
	st := store.New(pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL)), store.Video())
	uploads, err := upload.New(upload.Options{
		Dir: t.TempDir(), Prepare: prepareUpload(st, 1), OnComplete: submitUpload(st, nil), MinFree: -1,
		Principal: func(context.Context) string { return "ann" },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer uploads.Close()
	send := func(status int, method, path, body string, headers ...string) http.Header {
		t.Helper()
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		uploads.ServeHTTP(w, r)
		if w.Code != status {
			t.Fatalf("%s %s: %d %s, want %d", method, path, w.Code, w.Body, status)
		}
		return w.Header()
	}
	tus := []string{"Tus-Resumable", "1.0.0", "Upload-Length", "3"}
	chunk := []string{"Tus-Resumable", "1.0.0", "Content-Type", "application/offset+octet-stream", "Upload-Offset", "0"}
	first, second := send(201, http.MethodPost, "/uploads/", "", tus...), send(201, http.MethodPost, "/uploads/", "", tus...)
	send(204, http.MethodPatch, first.Get("Location"), "abc", chunk...)
	for _, refused := range []http.Header{
		send(429, http.MethodPost, "/uploads/", "", tus...),
		send(429, http.MethodPut, "/uploads/film.mp4", "abc"),
	} {
		if after, err := strconv.Atoi(refused.Get("Retry-After")); err != nil || after < 1 || after > 60 {
			t.Errorf("Retry-After is %q", refused.Get("Retry-After"))
		}
	}
	send(201, http.MethodPut, "/uploads/film.mp4?user_id=max", "abc")
	if done := send(204, http.MethodPatch, second.Get("Location"), "xyz", chunk...); done.Get("Cuelight-Task") == "" {
		t.Error("an upload that had begun was not submitted")
	}
}

func TestWatchedFiles_HaveTheRedefinedDefaultProfile(t *testing.T) {
	t.Parallel()
	st := store.New(pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL)), store.Video())
	if _, err := profiles.New(st).Set(t.Context(), "default", []byte(`{"quality": 30}`), "ann"); err != nil {
		t.Fatal(err)
	}
	file := sent(t, "a.mp4", "", "abc").Path
	err := watchedFiles{store: st, log: zap.NewNop()}.submit(t.Context(), []inbox.File{{Path: file, Size: 3}})
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := st.List(t.Context(), store.ListQuery{})
	if err != nil || len(tasks) != 1 {
		t.Fatalf("%+v, %v", tasks, err)
	}
	if params, err := video.ParseParams(tasks[0].Params); err != nil || params.Quality != 30 || params.Profile != "default" {
		t.Errorf("the task has %s, %v", tasks[0].Params, err)
	}
}
