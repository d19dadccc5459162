package ctxsleep_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
)

func TestFor_EndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, cause := time.Now(), errors.New("shut down")
		ctx, cancel := context.WithCancelCause(t.Context())
		if err := ctxsleep.For(ctx, time.Hour); err != nil || time.Since(start) != time.Hour {
			t.Errorf("%v after %v; want nil after an hour", err, time.Since(start))
		}
		time.AfterFunc(time.Minute, func() { cancel(cause) })
		if err := ctxsleep.For(ctx, time.Hour); !errors.Is(err, cause) || time.Since(start) != 61*time.Minute {
			t.Errorf("%v after %v; want the cause after a minute", err, time.Since(start))
		}
		if err := ctxsleep.For(ctx, 0); !errors.Is(err, cause) {
			t.Errorf("%v for no time", err)
		}
	})
}
