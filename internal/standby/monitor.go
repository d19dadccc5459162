package standby

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// identity is that of the tables: another database has others, or created them at another time.
const identity = `(select extract(epoch from since) || ' ' || tableoid from pipeline)`

const identitySQL = `
/* identity of the tables */
select ` + identity

const standbySQL = `
/* check the standby */
select pg_is_in_recovery(), coalesce((pg_last_wal_replay_lsn() - '0/0')::bigint, 0), ` + identity

// sample is the position of the primary at a time.
type sample struct {
	at       time.Time
	position position
}

// monitor finds the lag. It compares positions and not times, because the last transaction may be old, and the
// clocks of two servers differ.
type monitor struct {
	router    *Router
	identity  string   // of the primary's tables
	unreached []sample // positions that the standby has not replayed; oldest first
}

// Run checks the standby until ctx is done.
func (r *Router) Run(ctx context.Context) error {
	m := monitor{router: r}
	for {
		reason, lag := m.check(ctx)
		if ctx.Err() != nil {
			return nil
		}
		r.set(reason, lag)
		if ctxsleep.For(ctx, r.opts.interval) != nil {
			return nil
		}
	}
}

// check returns why the standby cannot be used, or "", and its lag.
func (m *monitor) check(ctx context.Context) (reason string, lag time.Duration) {
	m.samplePrimary(ctx)
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var isStandby bool
	var replayed position
	var identity string
	if err := m.router.opts.Standby.QueryRow(ctx, standbySQL).Scan(&isStandby, &replayed, &identity); err != nil {
		return m.router.unavailable(err), m.lag()
	}
	for len(m.unreached) > 0 && m.unreached[0].position <= replayed {
		m.unreached = m.unreached[1:]
	}
	lag = m.lag()
	limit := m.router.opts.MaxLag
	if m.router.Status().Reason != "" {
		limit /= 2 // so that it does not change at every check
	}
	switch {
	case m.identity == "":
		return "the primary was not read yet", lag
	case !isStandby:
		return "it is not a standby", lag
	case identity != m.identity:
		return "it is a standby of another database", lag
	case lag > limit:
		return fmt.Sprintf("it is %s behind", lag.Round(time.Second/10)), lag
	}
	return "", lag
}

// samplePrimary adds a sample, unless the primary does not answer: then nothing new is committed.
func (m *monitor) samplePrimary(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var now position
	asked, failures := time.Now(), m.router.failureCount()
	var batch pgx.Batch
	batch.Queue(primaryPositionSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	batch.Queue(identitySQL).QueryRow(func(row pgx.Row) error { return row.Scan(&m.identity) })
	if err := m.router.opts.Position.SendBatch(ctx, &batch).Close(); err != nil {
		return
	}
	if n := len(m.unreached); n == 0 || m.unreached[n-1].position < now {
		m.unreached = append(m.unreached, sample{asked, now})
	}
	if len(m.unreached) > maxSamples { // the oldest one says how far it is behind
		m.unreached = append(m.unreached[:1], m.unreached[2:]...)
	}
	m.router.setRequired(now, failures)
}

// maxSamples are those of an hour.
const maxSamples = 3600

func (m *monitor) lag() time.Duration {
	if len(m.unreached) == 0 {
		return 0
	}
	return time.Since(m.unreached[0].at)
}

func (r *Router) failureCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failures
}

// setRequired ends the time for which the required position is not known, unless [Router.Require] has failed again since the
// position was asked for: that call may be about a later one.
func (r *Router) setRequired(now position, failures int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unknown && r.failures == failures {
		r.required, r.unknown = max(r.required, now), false
	}
}

// TimeReplay returns how long the standby takes to replay what the primary has now, or why it cannot be used.
func (r *Router) TimeReplay(ctx context.Context) (time.Duration, error) {
	m := monitor{router: r}
	asked := time.Now()
	r.Require(ctx)
	for {
		reason, _ := m.check(ctx)
		if reason != "" {
			return 0, errors.New(reason)
		}
		if r.set("", 0); r.choose(ctx, "") == r.opts.Standby {
			return time.Since(asked), nil
		}
		if ctxsleep.For(ctx, replayPoll) != nil {
			return 0, fmt.Errorf("it has not replayed within %s what the primary has", time.Since(asked).Round(time.Second))
		}
	}
}

const replayPoll = 20 * time.Millisecond
