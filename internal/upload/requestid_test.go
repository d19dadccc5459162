package upload_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/upload"
)

// newServerWithTakenID starts a server on which the request id "film-17" belongs to another
// task.
func newServerWithTakenID(t *testing.T) *testServer {
	var s *testServer
	s = serve(t, upload.Options{
		SourceState: func(context.Context, upload.Upload) (upload.SourceState, error) {
			return upload.SourceCopied, nil
		},
		OnComplete: func(ctx context.Context, u upload.Upload) (upload.Receipt, error) {
			if u.RequestID == "film-17" {
				return upload.Receipt{}, fmt.Errorf("%w: it is task 7", upload.ErrRequestIDTaken)
			}
			return s.submissions.onComplete(ctx, u)
		},
	})
	return s
}

func (s *testServer) mustCleanUp(deleted, submitted int) {
	s.t.Helper()
	done, err := s.uploads.CleanUp(s.t.Context())
	if err != nil || done.DeletedFinished != deleted || done.Submitted != submitted || done.Expired != 0 {
		s.t.Errorf("CleanUp returned %+v, %v; want %d deleted, %d submitted", done, err, deleted, submitted)
	}
}

func TestTakenRequestID_KeepsTheFile(t *testing.T) {
	t.Parallel()
	s := newServerWithTakenID(t)
	const named = "film-17"
	simple := s.mustSendPlain(http.StatusConflict, "PUT", "/uploads/a.mp4?request_id="+named, strings.NewReader("abc"))
	begun := s.create(3, "Upload-Metadata", metadata("request_id", named, "priority", "3"))
	resumed := s.mustPatch(http.StatusConflict, begun, 0, strings.NewReader("abc"))
	for _, a := range []response{simple, resumed} {
		if a.kind() != "request-id-taken" || !strings.Contains(a.body, "task 7") ||
			!strings.Contains(a.body, "the file is kept") {
			t.Errorf("the body is %s", a.body)
		}
	}
	url := s.URL + simple.header.Get("Location")
	if simple.header.Get("Location") == "" {
		t.Fatalf("there is no Location: %v", simple.header)
	}
	s.mustCleanUp(0, 0)
	s.mustPatch(http.StatusConflict, url, 3, strings.NewReader("")) // it is still taken
	a := s.mustPatch(http.StatusNoContent, url, 3, strings.NewReader(""),
		"Upload-Metadata", metadata("request_id", "film-18"))
	u := s.submissions.only(t)
	if a.header.Get("Cuelight-Task") != "task-of-"+u.ID || u.RequestID != "film-18" {
		t.Errorf("with the id %q the headers are %v", u.RequestID, a.header)
	}
	s.checkFile(u, []byte("abc"))
	s.mustSend(http.StatusNoContent, "DELETE", begun, nil)
	s.mustCleanUp(1, 0)
	if left := s.entries(); len(left) > 0 {
		t.Errorf("remaining: %v", left)
	}
}

func TestTakenRequestID_SubmitsWhenTheOtherTaskIsGone(t *testing.T) {
	t.Parallel()
	gone := false
	var s *testServer
	s = serve(t, upload.Options{OnComplete: func(ctx context.Context, u upload.Upload) (upload.Receipt, error) {
		if !gone {
			return upload.Receipt{}, upload.ErrRequestIDTaken
		}
		return s.submissions.onComplete(ctx, u)
	}})
	s.mustSendPlain(http.StatusConflict, "PUT", "/uploads/a.mp4?request_id=film-17", strings.NewReader("abc"))
	gone = true
	s.mustCleanUp(0, 1)
	s.checkFile(s.submissions.only(t), []byte("abc"))
}

func TestUpload_ReportsAnExistingTask(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{OnComplete: func(context.Context, upload.Upload) (upload.Receipt, error) {
		return upload.Receipt{Task: "first", Existed: true}, nil
	}})
	a := s.mustSendPlain(http.StatusOK, "PUT", "/uploads/a.mp4", strings.NewReader("abc"))
	if !strings.Contains(a.body, `"task_id":"first","existed":true`) || a.header.Get("Cuelight-Task-Existed") != "true" {
		t.Errorf("the body is %s, %v", a.body, a.header)
	}
	url := s.create(3)
	a = s.mustPatch(http.StatusNoContent, url, 0, strings.NewReader("abc"))
	if a.header.Get("Cuelight-Task-Existed") != "true" {
		t.Errorf("the headers are %v", a.header)
	}
	if a := s.mustSend(http.StatusOK, "HEAD", url, nil); a.header.Get("Cuelight-Task-Existed") != "true" {
		t.Errorf("later the headers are %v", a.header)
	}
}
