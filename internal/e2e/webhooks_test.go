package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// The receiver does what docs/webhooks.md says.
func TestWebhooks_AreVerifiedByTheReferenceLibrary(t *testing.T) {
	h := newEnvironment(t)
	pool := h.newDatabase()
	type request struct {
		header http.Header
		body   []byte
	}
	requests := make(chan request, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		requests <- request{r.Header, body}
	}))
	defer receiver.Close()

	const allow = "CUELIGHT_WEBHOOK_ALLOW=127.0.0.0/8"
	type webhook struct{ ID, Secret string }
	webhooks := func(args ...string) (w webhook) {
		t.Helper()
		cmd := h.command(append([]string{"webhooks"}, append(args, "--json")...)...)
		cmd.Env = append(cmd.Env, allow, "CUELIGHT_DATABASE_URL="+pool.Config().ConnString())
		out, err := cmd.Output()
		if err != nil || json.Unmarshal(out, &w) != nil || w.ID == "" || w.Secret == "" {
			t.Fatalf("webhooks %q: %v, printed %q", args, err, out)
		}
		return w
	}
	// verify submits a task and checks the signatures of its event.
	verify := func(secrets ...string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), `insert into tasks (source) values ('/missing.mp4')`); err != nil {
			t.Fatal(err)
		}
		select {
		case r := <-requests:
			for i, secret := range secrets {
				w, err := standardwebhooks.NewWebhook(secret)
				if err != nil {
					t.Fatal(err)
				}
				if err := w.Verify(r.body, r.header); err != nil {
					t.Errorf("secret %d of %d: %v", i+1, len(secrets), err)
				}
			}
		case <-time.After(time.Minute):
			t.Fatal("no delivery")
		}
	}
	first := webhooks("add", receiver.URL, "--type", "submitted")
	h.serveWith([]string{allow}, pool)
	verify(first.Secret)
	second := webhooks("rotate", first.ID)
	verify(first.Secret, second.Secret)
}
