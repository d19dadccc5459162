package daemon

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// contactGrace is how long the coordinator may not answer before that is logged: a cut connection is
	// not worth a line.
	contactGrace = 2 * time.Second
	// contactRepeat is how often it is logged again while it goes on.
	contactRepeat = 5 * time.Minute
)

// ContactLog logs when a remote worker's coordinator does not answer, and when it answers again.
type ContactLog struct {
	log *zap.Logger

	mu      sync.Mutex // guards the rest
	manager *systemd
	since   time.Time // when the coordinator began not to answer; zero if it answers
	next    time.Time // when that is to be logged
	logged  bool      // at least once since then
}

// NewContactLog returns a ContactLog.
func NewContactLog(log *zap.Logger) *ContactLog { return &ContactLog{log: log, manager: &systemd{}} }

// Observe is for remote.ClientOptions.OnContact.
func (c *ContactLog) Observe(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if err == nil {
		if c.logged {
			c.log.Info("coordinator available again", zap.Duration("away", c.awayUntil(now)))
			c.manager.notify("STATUS=working")
		}
		c.since, c.logged = time.Time{}, false
		return
	}
	if c.since.IsZero() {
		c.since, c.next = now, now.Add(contactGrace)
	}
	if now.Before(c.next) {
		return
	}
	c.log.Warn("coordinator unavailable", zap.Duration("away", c.awayUntil(now)), zap.Error(err))
	c.manager.notify("STATUS=waiting for the coordinator")
	c.next, c.logged = now.Add(contactRepeat), true
}

func (c *ContactLog) awayUntil(now time.Time) time.Duration {
	return now.Sub(c.since).Round(100 * time.Millisecond)
}

// notifyManager makes it tell a service manager the status, too.
func (c *ContactLog) notifyManager(m *systemd) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.manager = m
}
