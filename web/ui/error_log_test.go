package ui_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/web/ui"
)

// failingReader is a reader whose totals and counts can fail.
type failingReader struct {
	ui.Reader
	mu  sync.Mutex
	err error
}

func (f *failingReader) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *failingReader) Stats(ctx context.Context) (report.Stats, error) {
	f.mu.Lock()
	err := f.err
	f.mu.Unlock()
	if err != nil {
		return report.Stats{}, err
	}
	return f.Reader.Stats(ctx)
}

func (f *failingReader) CountDead(context.Context, report.DeadFilter) (int, bool, error) {
	return 0, false, errors.New("no such column")
}

func TestOnError_ReportsALastingErrorOnce(t *testing.T) {
	t.Parallel()
	reader := &failingReader{err: errors.New("no such function")}
	var mu sync.Mutex
	var reported []string
	s := newTestSite(t, func(o *ui.Options) {
		reader.Reader = o.Store
		o.Store = reader
		o.OnError = func(where string, err error) {
			mu.Lock()
			defer mu.Unlock()
			reported = append(reported, where+": "+err.Error())
		}
	})
	expect := func(want ...string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if fmt.Sprint(reported) != fmt.Sprint(want) {
			t.Errorf("reported %q, want %q", reported, want)
		}
	}
	for range 3 {
		status, body, header := s.get("/?q=secret")
		if status != http.StatusServiceUnavailable || strings.Contains(body, "no such function") ||
			header.Get("Refresh") != "10" {
			t.Errorf("status %d, %v", status, header)
		}
	}
	expect("board: no such function")
	reader.fail(fmt.Errorf("read: %w", context.DeadlineExceeded))
	if _, _, header := s.get("/?q=secret"); header.Get("Refresh") != "60" {
		t.Errorf("after a timeout the page reloads in %q s", header.Get("Refresh"))
	}
	expect("board: no such function", "board: read: context deadline exceeded")
	reader.fail(nil)
	if status, _, _ := s.get("/?q=secret"); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
	s.get("/videos/" + strings.Repeat("0", 8)) // errors of users are not reported
	s.get("/dead?stage=lunch")
	expect("board: no such function", "board: read: context deadline exceeded")
	s.get("/dead/retry")
	expect("board: no such function", "board: read: context deadline exceeded", "GET /dead/retry: no such column")
}
