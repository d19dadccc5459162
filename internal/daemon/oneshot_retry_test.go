package daemon

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/fetch"
)

func TestRetryDelay_FollowsTheServerWithinALimit(t *testing.T) {
	t.Parallel()
	away := errors.New("connection reset")
	for _, c := range []struct {
		err     error
		attempt int
		want    time.Duration
	}{
		{away, 1, 2 * time.Second},
		{away, 2, 4 * time.Second},
		{fmt.Errorf("x: %w", &fetch.Error{RetryAfter: 10 * time.Second, Err: away}), 1, 10 * time.Second},
		{&fetch.Error{RetryAfter: time.Hour, Err: away}, 1, 30 * time.Second},
	} {
		if got := retryDelay(c.err, c.attempt); got != c.want {
			t.Errorf("after attempt %d, %v: %s, want %s", c.attempt, c.err, got, c.want)
		}
	}
}
