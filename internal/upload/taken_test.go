package upload_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/upload"
)

// taken is a site whose request id "film-17" is the task of another file.
func taken(t *testing.T) *site {
	var s *site
	s = serve(t, upload.Options{
		Problems: "urn:test:",
		Fate:     func(context.Context, upload.Upload) (upload.Fate, error) { return upload.Taken, nil },
		OnComplete: func(ctx context.Context, u upload.Upload) (upload.Receipt, error) {
			if u.RequestID == "film-17" {
				return upload.Receipt{}, fmt.Errorf("%w: it is task 7", upload.ErrRequestTaken)
			}
			return s.taker.take(ctx, u)
		},
	})
	return s
}

func (s *site) tidies(released, handed int) {
	s.t.Helper()
	if done, err := s.uploads.Tidy(s.t.Context()); err != nil || done.Released != released || done.Handed != handed || done.Expired != 0 {
		s.t.Errorf("tidied %+v, %v; want %d released, %d handed over", done, err, released, handed)
	}
}

func TestUploadWhoseRequestIDIsTaken_KeepsItsFileUntilItIsATask(t *testing.T) {
	t.Parallel()
	s := taken(t)
	const named = "film-17"
	simple := s.plain(http.StatusConflict, "PUT", "/uploads/a.mp4?request_id="+named, strings.NewReader("abc"))
	begun := s.begin(3, "Upload-Metadata", metadata("request_id", named, "priority", "3"))
	resumed := s.patch(http.StatusConflict, begun, 0, strings.NewReader("abc"))
	for _, a := range []answer{simple, resumed} {
		if a.kind() != "request-id-taken" || !strings.Contains(a.body, "task 7") || !strings.Contains(a.body, "the file is kept") {
			t.Errorf("it says %s", a.body)
		}
	}
	url := s.URL + simple.header.Get("Location")
	if simple.header.Get("Location") == "" {
		t.Fatalf("nobody is told where the file is: %v", simple.header)
	}
	s.tidies(0, 0)
	s.patch(http.StatusConflict, url, 3, strings.NewReader("")) // asked again, it is still taken
	a := s.patch(http.StatusNoContent, url, 3, strings.NewReader(""), "Upload-Metadata", metadata("request_id", "film-18"))
	u := s.taker.only(t)
	if a.header.Get("Cuelight-Task") != "task-of-"+u.ID || u.RequestID != "film-18" {
		t.Errorf("as %q it became %v", u.RequestID, a.header)
	}
	s.sameFile(u, []byte("abc"))
	s.do(http.StatusNoContent, "DELETE", begun, nil)
	s.tidies(1, 0)
	if left := s.left(); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

func TestUploadWhoseRequestIDIsTaken_BecomesATaskWhenTheOtherIsGone(t *testing.T) {
	t.Parallel()
	gone := false
	var s *site
	s = serve(t, upload.Options{OnComplete: func(ctx context.Context, u upload.Upload) (upload.Receipt, error) {
		if !gone {
			return upload.Receipt{}, upload.ErrRequestTaken
		}
		return s.taker.take(ctx, u)
	}})
	s.plain(http.StatusConflict, "PUT", "/uploads/a.mp4?request_id=film-17", strings.NewReader("abc"))
	gone = true
	s.tidies(0, 1)
	s.sameFile(s.taker.only(t), []byte("abc"))
}

func TestUploadOfATaskThatExisted_SaysSo(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{OnComplete: func(context.Context, upload.Upload) (upload.Receipt, error) {
		return upload.Receipt{Task: "first", Existed: true}, nil
	}})
	a := s.plain(http.StatusOK, "PUT", "/uploads/a.mp4", strings.NewReader("abc"))
	if !strings.Contains(a.body, `"task_id":"first","existed":true`) || a.header.Get("Cuelight-Task-Existed") != "true" {
		t.Errorf("it says %s, %v", a.body, a.header)
	}
	url := s.begin(3)
	if a := s.patch(http.StatusNoContent, url, 0, strings.NewReader("abc")); a.header.Get("Cuelight-Task-Existed") != "true" {
		t.Errorf("it says %v", a.header)
	}
	if a := s.do(http.StatusOK, "HEAD", url, nil); a.header.Get("Cuelight-Task-Existed") != "true" {
		t.Errorf("later it says %v", a.header)
	}
}
