package web_test

import (
	"context"
	"crypto/sha256"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
)

// Clients without credentials may post the theme. The server must not keep a large form
// of theirs in memory or on disk.
func TestDashboardForm_HasASizeLimit(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	b := setup(t, func(o *web.Options) {
		o.Dashboard = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			err := r.ParseMultipartForm(1 << 20)
			if err == nil {
				err = r.MultipartForm.RemoveAll()
			}
			failed <- err
		})
	})
	for size, tooMuch := range map[int]bool{100 << 10: false, 1 << 20: true} {
		var form strings.Builder
		w := multipart.NewWriter(&form)
		part, err := w.CreateFormFile("f", "f")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(part, strings.Repeat("x", size)) // a Builder returns no errors
		_ = w.Close()
		b.do(call{
			method: "POST", path: "/theme", as: "-", body: form.String(),
			header: http.Header{"Content-Type": {w.FormDataContentType()}},
		})
		if err := <-failed; (err != nil) != tooMuch {
			t.Errorf("a form of %d bytes: %v", size, err)
		}
	}
}

// singleKeyStore has one API key.
type singleKeyStore struct {
	mu  sync.Mutex
	key access.Key
}

func (k *singleKeyStore) FindKey(context.Context, string) (access.Key, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.key, nil
}

func (k *singleKeyStore) UseKey(context.Context, store.ID) error { return nil }

func (k *singleKeyStore) Keys(ctx context.Context) ([]access.Key, error) {
	key, err := k.FindKey(ctx, "")
	return []access.Key{key}, err
}

func (k *singleKeyStore) revoke() {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	k.key.RevokedAt = &now
}

func TestOpenPage_EndsWithItsKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		open    time.Duration
		revoked bool
		ended   bool
	}{
		"valid":         {time.Hour, false, false},
		"revoked":       {time.Hour, true, true},
		"open for long": {7 * time.Hour, false, true}, // the next request renews its session
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				text := "cue_aaaaaaaa_" + strings.Repeat("A", 43)
				keys := &singleKeyStore{key: access.Key{
					Name: "wall", Scope: access.Read.String(), Prefix: "aaaaaaaa", Digest: sha256.Sum256([]byte(text)),
				}}
				ended := follow(t, keys, text)
				time.Sleep(c.open)
				if c.revoked {
					keys.revoke()
				}
				time.Sleep(time.Minute + time.Second)
				synctest.Wait()
				select {
				case <-ended:
					if !c.ended {
						t.Error("the page ended")
					}
				default:
					if c.ended {
						t.Error("the page is still open")
					}
				}
			})
		})
	}
}

// follow opens a page that stays open until the test or the server ends it. It returns a
// channel that is closed then.
func follow(t *testing.T, keys access.Keys, text string) <-chan struct{} {
	t.Helper()
	o := minimalOptions(t)
	var err error
	if o.Guard, err = access.New(access.Options{Keys: keys}); err != nil {
		t.Fatal(err)
	}
	o.Dashboard = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s, err := web.New(o)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/live", nil)
	r.Header.Set("Authorization", "Bearer "+text)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Handler().ServeHTTP(httptest.NewRecorder(), r)
	}()
	return ended
}

func TestNew_RejectsInvalidBasePaths(t *testing.T) {
	t.Parallel()
	for base, ok := range map[string]bool{
		"": true, "/cue": true, "/media/cue": true,
		"/": false, "cue": false, "/cue/": false, "//evil.example": false, "/a//b": false, "/a/../b": false,
		"/.": false, "/{x}": false, "/a b": false,
	} {
		o := minimalOptions(t)
		o.BasePath = base
		if _, err := web.New(o); (err == nil) != ok {
			t.Errorf("%q: %v", base, err)
		}
	}
}
