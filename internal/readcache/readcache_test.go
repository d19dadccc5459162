package readcache_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/internal/readcache"
)

const readTimeout = 5 * time.Second

func TestGet_SharedReadHasOneDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := readcache.Cache[int]{Timeout: readTimeout}
		hangs := func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := m.Get(ctx, hangs); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		start = time.Now()
		errs := make(chan error)
		for range 3 {
			go func() {
				_, err := m.Get(t.Context(), hangs)
				errs <- err
			}()
		}
		for range 3 {
			if err := <-errs; err == nil {
				t.Error("the read did not fail")
			}
		}
		if d := time.Since(start); d != readTimeout {
			t.Errorf("the last caller waited for %s", d)
		}
	})
}

func TestGet_KeepsAValueForItsAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := readcache.Cache[int]{MaxAge: time.Second, Factor: 10, Timeout: readTimeout}
		reads, takes := 0, time.Duration(0)
		get := func(want int) {
			t.Helper()
			got, err := m.Get(t.Context(), func(context.Context) (int, error) {
				time.Sleep(takes)
				reads++
				return reads, nil
			})
			if got != want || err != nil {
				t.Errorf("got %d, %v; want %d", got, err, want)
			}
		}
		get(1)
		time.Sleep(999 * time.Millisecond)
		get(1)
		time.Sleep(time.Millisecond)
		takes = time.Second // a slow read is kept for longer
		get(2)
		time.Sleep(9 * time.Second)
		get(2)
		m.Invalidate()
		get(3)
	})
}

func TestInvalidate_IgnoresAReadInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := readcache.Cache[string]{MaxAge: time.Hour, Timeout: readTimeout}
		old := make(chan string)
		go func() {
			got, _ := m.Get(t.Context(), func(context.Context) (string, error) {
				time.Sleep(2 * time.Second)
				return "old", nil
			})
			old <- got
		}()
		synctest.Wait()
		m.Invalidate()
		fresh := func(context.Context) (string, error) { return "new", nil }
		if got, err := m.Get(t.Context(), fresh); got != "new" || err != nil {
			t.Errorf("during the old read: %q, %v", got, err)
		}
		if got := <-old; got != "old" {
			t.Errorf("the caller of the old read got %q", got)
		}
		if got, err := m.Get(t.Context(), fresh); got != "new" || err != nil {
			t.Errorf("after the old read: %q, %v", got, err)
		}
	})
}

func TestGet_EndsTheWaitOfAllWhenTheReadPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := readcache.Cache[int]{MaxAge: time.Hour, Timeout: readTimeout}
		go func() {
			defer func() { recover() }()
			_, _ = m.Get(t.Context(), func(context.Context) (int, error) {
				time.Sleep(time.Second)
				panic("broken")
			})
		}()
		synctest.Wait()
		if _, err := m.Get(t.Context(), nil); err == nil {
			t.Error("the waiting caller got no error")
		}
	})
}
