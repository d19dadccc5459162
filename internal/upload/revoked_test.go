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

// newRevocableServer starts a server. Revoke revokes all principals.
func newRevocableServer(t *testing.T, askEvery time.Duration) (s *testServer, revoke func()) {
	t.Helper()
	var revoked atomic.Bool
	s = serve(t, upload.Options{
		CheckPrincipalInterval: askEvery, CheckPrincipal: func(context.Context) error {
			if revoked.Load() {
				return fmt.Errorf("%w: credentials are not valid", upload.ErrRevoked)
			}
			return errors.New("the database is down")
		},
	})
	return s, func() { revoked.Store(true) }
}

func (a response) mustBeUnauthenticated(t *testing.T) {
	t.Helper()
	if a.status != http.StatusUnauthorized || a.kind() != "unauthenticated" || a.header.Get("WWW-Authenticate") == "" {
		t.Errorf("got %d %s", a.status, a.body)
	}
}

func TestRevokedKey_InterruptsTheUpload(t *testing.T) {
	t.Parallel()
	s, revoke := newRevocableServer(t, 10*time.Millisecond)
	url := s.create(6)
	resumable := s.startPatch(url, 0, 6)
	io.WriteString(resumable.body, "abc")
	s.waitForOffset(url, 3)
	whole, feed := io.Pipe()
	defer feed.Close()
	simple := make(chan response, 1)
	go func() {
		a, _ := s.send("PUT", "/uploads/a.mp4", whole, "Tus-Resumable", "")
		simple <- a
	}()
	io.WriteString(feed, "abc")
	revoke()
	(<-resumable.response).mustBeUnauthenticated(t)
	(<-simple).mustBeUnauthenticated(t)
	s.waitForOffset(url, 3) // kept, as after a broken connection
	if done, err := s.uploads.CleanUp(t.Context()); err != nil || done.Submitted != 0 || len(s.submissions.all()) != 0 {
		t.Errorf("%d uploads became tasks; %+v, %v", len(s.submissions.all()), done, err)
	}
	if left := s.entries(); len(left) != 1 {
		t.Errorf("remaining: %v", left)
	}
}

func TestRevokedKey_IsCheckedBeforeCompletion(t *testing.T) {
	t.Parallel()
	s, revoke := newRevocableServer(t, time.Hour)
	url := s.create(6)
	s.mustPatch(http.StatusNoContent, url, 0, strings.NewReader("abc"))
	revoke()
	s.mustPatch(http.StatusUnauthorized, url, 3, strings.NewReader("def")).mustBeUnauthenticated(t)
	s.mustSendPlain(http.StatusUnauthorized, "PUT", "/uploads/a.mp4", strings.NewReader("abc")).mustBeUnauthenticated(t)
	if done, err := s.uploads.CleanUp(t.Context()); err != nil || done.Submitted != 0 || len(s.submissions.all()) != 0 {
		t.Errorf("%d uploads became tasks; %+v, %v", len(s.submissions.all()), done, err)
	}
	if left := s.entries(); len(left) > 0 {
		t.Errorf("remaining: %v", left)
	}
}
