package upload_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/upload"
)

// revocable is a site whose principals are all revoked once revoke is called.
func revocable(t *testing.T, askEvery time.Duration) (s *site, revoke func()) {
	t.Helper()
	var revoked atomic.Bool
	s = serve(t, upload.Options{Problems: "urn:test:", AskEvery: askEvery, Still: func(context.Context) error {
		if revoked.Load() {
			return fmt.Errorf("%w: credentials are not valid", upload.ErrRevoked)
		}
		return errors.New("the database is away")
	}})
	return s, func() { revoked.Store(true) }
}

func (a answer) isUnauthenticated(t *testing.T) {
	t.Helper()
	if a.status != http.StatusUnauthorized || a.kind() != "unauthenticated" || a.header.Get("WWW-Authenticate") == "" {
		t.Errorf("it was answered %d %s", a.status, a.body)
	}
}

func TestUploadOfARevokedKey_IsBrokenOff(t *testing.T) {
	t.Parallel()
	s, revoke := revocable(t, 10*time.Millisecond)
	url := s.begin(6)
	resumable := s.slowPatch(url, 0, 6)
	io.WriteString(resumable.feed, "abc")
	s.has(url, 3)
	whole, feed := io.Pipe()
	defer feed.Close()
	simple := make(chan answer, 1)
	go func() {
		a, _ := s.try("PUT", "/uploads/a.mp4", whole, "Tus-Resumable", "")
		simple <- a
	}()
	io.WriteString(feed, "abc")
	revoke()
	(<-resumable.answer).isUnauthenticated(t)
	(<-simple).isUnauthenticated(t)
	s.has(url, 3) // kept, as if the connection had broken
	if done, err := s.uploads.Tidy(t.Context()); err != nil || done.Handed != 0 || len(s.taker.all()) != 0 {
		t.Errorf("%d uploads became tasks; %+v, %v", len(s.taker.all()), done, err)
	}
	if left := s.left(); len(left) != 1 {
		t.Errorf("%v is left", left)
	}
}

func TestUploadOfARevokedKey_IsAskedForBeforeItIsComplete(t *testing.T) {
	t.Parallel()
	s, revoke := revocable(t, time.Hour)
	url := s.begin(6)
	s.patch(http.StatusNoContent, url, 0, strings.NewReader("abc"))
	revoke()
	s.patch(http.StatusUnauthorized, url, 3, strings.NewReader("def")).isUnauthenticated(t)
	s.plain(http.StatusUnauthorized, "PUT", "/uploads/a.mp4", strings.NewReader("abc")).isUnauthenticated(t)
	if done, err := s.uploads.Tidy(t.Context()); err != nil || done.Handed != 0 || len(s.taker.all()) != 0 {
		t.Errorf("%d uploads became tasks; %+v, %v", len(s.taker.all()), done, err)
	}
	if left := s.left(); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
