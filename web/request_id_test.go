package web_test

import (
	"net/http"
	"testing"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/store"
)

func TestRequestID_BelongsToItsKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one, two := b.key(access.Submit.String()), b.key(access.Submit.String())
	submit := func(as, source string) testResponse {
		t.Helper()
		return b.do(call{
			method: "POST", path: api + "/tasks", as: as,
			body: map[string]any{"source": source, "request_id": "film-17"},
		})
	}
	var first, again, other, admins struct {
		TaskID  store.ID `json:"task_id"`
		Existed bool
	}
	submit(one, "https://h/a").wantStatus(http.StatusCreated, &first)
	submit(one, "https://h/a").wantStatus(http.StatusOK, &again)
	submit(two, "https://h/b").wantStatus(http.StatusCreated, &other)
	submit("", "https://h/c").wantStatus(http.StatusCreated, &admins)
	if !again.Existed || again.TaskID != first.TaskID || other.TaskID == first.TaskID || admins.TaskID == first.TaskID {
		t.Errorf("first %v, again %v, of another key %v, of the admin %v", first, again, other, admins)
	}
	submit(one, "https://h/b").wantProblem(http.StatusConflict, "request-id-taken")
	// All or none.
	b.do(call{method: "POST", path: api + "/tasks", as: one, body: map[string]any{"tasks": []any{
		map[string]any{"source": "https://h/new"}, map[string]any{"source": "https://h/b", "request_id": "film-17"},
	}}}).wantProblem(http.StatusConflict, "request-id-taken")
	tasks, err := b.List(t.Context(), store.ListQuery{Filter: store.Filter{}})
	if err != nil || len(tasks) != 3 {
		t.Errorf("there are %d tasks, %v", len(tasks), err)
	}
	if by := tasks[0].SubmittedBy; by != "" {
		t.Errorf("the admin's is of %q", by)
	}
	if task, err := b.Get(t.Context(), first.TaskID); err != nil || len(task.SubmittedBy) < len("key 12345678") {
		t.Errorf("the key's is %+v, %v", task, err)
	}
	// Where the admin secret leads, the database does, too.
	if r, err := b.Submit(t.Context(), store.Submission{Source: "https://h/c", RequestID: "film-17"}); err != nil ||
		r.ID != admins.TaskID {
		t.Errorf("by the database it is %+v, %v", r, err)
	}
}
