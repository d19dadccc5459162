package daemon

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestContactLog_LogsALossAtOnceAndThenAtIntervals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		c := NewContactLog(zap.New(core))
		wantLines := func(want ...string) {
			t.Helper()
			var got []string
			for _, e := range logs.TakeAll() {
				away, err := e.ContextMap()["away"], e.ContextMap()["error"]
				got = append(got, strings.TrimSpace(fmt.Sprint(e.Level, " ", e.Message, " ", away, " ", err)))
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("the lines are %q, want %q", got, want)
			}
		}
		fail := func(during time.Duration) {
			for ends := time.Now().Add(during); time.Now().Before(ends); time.Sleep(time.Second) {
				c.Observe(errors.New("refused"))
			}
		}
		c.Observe(errors.New("a cut connection"))
		c.Observe(nil)
		wantLines()
		for range 2 {
			fail(3 * time.Second)
			wantLines("warn coordinator unavailable 2s refused")
			fail(299 * time.Second)
			wantLines()
			fail(2 * time.Second)
			wantLines("warn coordinator unavailable 5m2s refused")
			c.Observe(nil)
			c.Observe(nil)
			wantLines("info coordinator available again 5m4s <nil>")
		}
	})
}
