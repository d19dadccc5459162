package webhook

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
)

// An accepted address can be requested, and contains no secret and no private address.
func FuzzCheckAddress(f *testing.F) {
	for _, s := range []string{
		"https://example.com/hook?key=a", "http://example.com", "https://127.0.0.1/",
		"https://[::ffff:127.0.0.1]/", "https://u:p@h/",
		"https://localhost.:8443/", "https://h:0/", "https://\u202e/", "https:////h", "https://h\\@127.0.0.1/",
		"https://[fe80::1%25lo]/",
	} {
		f.Add(s)
	}
	w := New(Options{})
	f.Fuzz(func(t *testing.T, s string) {
		err := w.checkAddress(s)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%q: %v", s, err)
			}
			return
		}
		r, err := http.NewRequest(http.MethodPost, s, nil)
		if err != nil || r.URL.Scheme != "https" || r.URL.Hostname() == "" || r.URL.User != nil || len(s) > maxAddress {
			t.Errorf("%q was accepted: %v", s, err)
		}
		for _, addr := range addressesOf(r.URL.Hostname()) {
			if addr.IsLoopback() || addr.IsPrivate() || addr.IsUnspecified() || addr.IsLinkLocalUnicast() {
				t.Errorf("%q was accepted", s)
			}
		}
	})
}

func FuzzPayload(f *testing.F) {
	for _, s := range []string{"https://h/a.mp4", "/a.mp4", "file:/a", strings.Repeat("\x01", 1<<10)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text := (payload{Data: eventData{Task: publicTask(store.Task{Source: s, UserID: s, RequestID: s})}}).encode()
		if len(text) > maxPayload {
			t.Errorf("%d bytes of %q", len(text), s)
		}
	})
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"120", "Sun, 01 Mar 2026 12:01:00 GMT", "-1", "9999999999999999999999"} {
		f.Add(s)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		if d := retryAfter(http.Header{"Retry-After": {s}}, now); d < 0 || d > maxRetryAfter {
			t.Errorf("%q is %v", s, d)
		}
	})
}
