package standby

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/store"
)

// Options configure a [Router]. The pools are required.
type Options struct {
	Primary *pgxpool.Pool // for statements that do not go to the standby
	// Position has connections to the primary for its position, which take less than a millisecond each.
	Position *pgxpool.Pool
	Standby  *pgxpool.Pool
	// MaxLag is how far the standby may be behind. Default 10 s.
	MaxLag time.Duration
	// OnChange is called when the standby is used no longer, with the reason, and with "" when it is used again. It
	// must not block.
	OnChange func(reason string)
	// Explain describes an error of the standby for users. Default: its text.
	Explain func(error) string

	interval time.Duration // between two checks; in tests shorter
}

// Router is a [store.DB] for reads. Many goroutines may use it.
type Router struct {
	opts Options

	mu       sync.Mutex
	required position // what the standby must have replayed
	// unknown says that required could not be read, so that only the primary is right until it is read again; failures
	// counts how often that was so.
	unknown  bool
	failures int
	reason   string // why the standby is not used; empty if it is
	lag      time.Duration
}

// position is one in the WAL, in bytes.
type position int64

const notChecked = "it was not checked yet"

// New returns a Router that uses the primary until [Router.Run] has checked the standby.
func New(o Options) *Router {
	if o.MaxLag <= 0 {
		o.MaxLag = 10 * time.Second
	}
	if o.OnChange == nil {
		o.OnChange = func(string) {}
	}
	if o.Explain == nil {
		o.Explain = error.Error
	}
	if o.interval <= 0 {
		o.interval = time.Second
	}
	return &Router{opts: o, reason: notChecked}
}

// checkTimeout limits the statements that find out whether the standby can be used.
const checkTimeout = time.Second

// primaryPositionSQL includes commits that do not wait for the disk.
const primaryPositionSQL = `
/* position of the primary */
select (pg_current_wal_insert_lsn() - '0/0')::bigint`

const replayedSQL = `
/* position of the standby */
select (pg_last_wal_replay_lsn() - '0/0')::bigint`

// Require makes later reads show everything that was committed before the call.
func (r *Router) Require(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	var at position
	err := r.opts.Position.QueryRow(ctx, primaryPositionSQL).Scan(&at)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.unknown = true
		r.failures++
		return
	}
	r.required = max(r.required, at)
}

// choose returns the pool for a statement.
func (r *Router) choose(ctx context.Context, sql string) *pgxpool.Pool {
	r.mu.Lock()
	required, usable := r.required, r.reason == "" && !r.unknown
	r.mu.Unlock()
	if !usable || ctx.Value(primaryOnly{}) != nil || needsPrimary(sql) {
		return r.opts.Primary
	}
	// The check also proves that the connection works. The statement gets the same one, which was used last.
	checkCtx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var replayed position
	if err := r.opts.Standby.QueryRow(checkCtx, replayedSQL).Scan(&replayed); err != nil {
		if ctx.Err() == nil {
			r.set(r.unavailable(err), r.Status().Lag)
		}
		return r.opts.Primary
	}
	if replayed < required {
		return r.opts.Primary
	}
	return r.opts.Standby
}

// needsPrimary reports whether a statement reads locks: the session of a worker is a lock, and those of the primary
// are not on the standby.
func needsPrimary(sql string) bool { return strings.Contains(sql, "pg_locks") }

// primaryOnly is the key of contexts whose reads go to the primary.
type primaryOnly struct{}

// Begin implements [store.DB].
func (r *Router) Begin(ctx context.Context) (pgx.Tx, error) { return r.choose(ctx, "").Begin(ctx) }

// Exec implements [store.DB].
func (r *Router) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return r.choose(ctx, sql).Exec(ctx, sql, args...)
}

// Query implements [store.DB].
func (r *Router) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return r.choose(ctx, sql).Query(ctx, sql, args...)
}

// QueryRow implements [store.DB].
func (r *Router) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return r.choose(ctx, sql).QueryRow(ctx, sql, args...)
}

// SendBatch implements [store.DB].
func (r *Router) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	var all strings.Builder
	for _, q := range b.QueuedQueries {
		all.WriteString(q.SQL)
	}
	return r.choose(ctx, all.String()).SendBatch(ctx, b)
}

var _ store.DB = (*Router)(nil)

// Status says whether the standby is used, and how far it is behind.
type Status struct {
	Lag    time.Duration // as of the last check that could read it
	Reason string        // why the primary is used instead; empty if the standby is
}

// Status returns the present status.
func (r *Router) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Status{r.lag, r.reason}
}

// set records the result of a check.
func (r *Router) set(reason string, lag time.Duration) {
	r.mu.Lock()
	changed := (reason == "") != (r.reason == "") || r.reason == notChecked
	r.reason, r.lag = reason, lag
	r.mu.Unlock()
	if changed {
		r.opts.OnChange(reason)
	}
}

func (r *Router) unavailable(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "it does not answer in time"
	}
	return "it cannot be read: " + r.opts.Explain(err)
}
