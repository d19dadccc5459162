package web_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/store"
)

// tus is a request of the protocol.
func (b *testServer) tus(as, method, path, body string, headers ...string) testResponse {
	b.t.Helper()
	h := http.Header{"Tus-Resumable": {"1.0.0"}, "Content-Type": {"application/offset+octet-stream"}}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	c := call{method: method, path: path, as: as, header: h}
	if body != "" {
		c.body = body
	}
	return b.do(c)
}

func TestUpload_IsResumedByItsKeyAndBecomesATask(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mine, others, reader := b.key("submit"), b.key("submit"), b.key("read")
	meta := "filename " + base64.StdEncoding.EncodeToString([]byte("a.mp4")) +
		",user_id " + base64.StdEncoding.EncodeToString([]byte("user 7"))
	begun := b.tus(mine, "POST", api+"/uploads/", "", "Upload-Length", "6", "Upload-Metadata", meta).wantStatus(201, nil)
	at := begun.header.Get("Location")
	if !strings.HasPrefix(at, api+"/uploads/") {
		t.Fatalf("the Location is %q", at)
	}
	b.tus(reader, "POST", api+"/uploads/", "", "Upload-Length", "6").wantProblem(403, "forbidden")
	b.tus(mine, "PATCH", at, "abc", "Upload-Offset", "0").wantStatus(204, nil)

	// Some clients cannot send PATCH, nor HEAD.
	b.tus(others, "POST", at, "def", "Upload-Offset", "3", "X-HTTP-Method-Override", "PATCH").wantProblem(404, "not-found")
	b.tus(others, "HEAD", at, "").wantStatus(404, nil)
	b.tus(mine, "POST", at, "def", "Upload-Offset", "2", "X-HTTP-Method-Override", "PATCH").
		wantProblem(409, "upload-offset")
	if got := b.tus(mine, "HEAD", at, "").wantStatus(200, nil); got.header.Get("Upload-Offset") != "3" {
		t.Errorf("the headers are %v", got.header)
	}
	var list struct{ Uploads []struct{ ID string } }
	if b.do(call{method: "GET", path: api + "/uploads/", as: mine}).wantStatus(200, &list); len(list.Uploads) != 1 {
		t.Errorf("uploads are %+v", list)
	}
	done := b.tus(mine, "POST", at, "def", "Upload-Offset", "3", "X-HTTP-Method-Override", "PATCH").wantStatus(204, nil)
	id, err := store.ParseID(done.header.Get("Cuelight-Task"))
	if err != nil {
		t.Fatal(err)
	}
	if task, err := b.Get(t.Context(), id); err != nil || task.UserID != "user 7" {
		t.Errorf("%+v, %v", task, err)
	}
	b.do(call{method: "GET", path: at, as: mine}).wantStatus(200, nil)
	b.tus(mine, "DELETE", at, "").wantProblem(409, "upload-complete")
	b.tus(mine, "OPTIONS", api+"/uploads/", "").wantStatus(204, nil)
}

func TestUpload_AcceptsAWholeFileByAnyMethod(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, at := range []string{"PUT a.mp4", "POST a.mp4", "POST ", "PUT "} {
		method, name, _ := strings.Cut(at, " ")
		var got struct {
			Name string
			Task store.ID `json:"task_id"`
		}
		c := call{
			method: method, path: api + "/uploads/" + name, body: "film",
			header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}},
		}
		if b.do(c).wantStatus(201, &got); got.Name != name || got.Task.IsZero() {
			t.Errorf("%s: %+v", at, got)
		}
	}
}
