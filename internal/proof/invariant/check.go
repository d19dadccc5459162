package invariant

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// Options are what the caller knows. The zero Options checks what holds at any
// time, whatever operators do with retry, cancel and override.
type Options struct {
	// Settled says that no fault is going on, that there were workers for every
	// stage, and that they had the time to finish: nothing is to be done, and
	// nothing is being done.
	Settled bool
	// NoRetries says that no operator retried anything: what is completed is
	// completed once, and attempts are counted without a gap.
	NoRetries bool
	// HeldAtMost is for how long a claim may outlive its worker: the lease and
	// a sweep. Default 0: not checked.
	HeldAtMost time.Duration
	// MaxAttempts is, by stage, how often it is tried. Default nil: not checked.
	MaxAttempts []int
	// TurnAtMost is how long a transaction that claims may have taken: a claim
	// carries the time at which its transaction began. Default 10 s.
	TurnAtMost time.Duration
	// PassedAtMost is how many later tasks of its priority may have begun a stage, for the
	// first time, before a task that was ready for it. It is for runs of one process
	// in which nobody paused a stage, locked rows, changed a priority or ageing is on;
	// what legitimately passes a task then is what a process had claimed when the task
	// became ready. Default nil: not checked.
	PassedAtMost *int
	// Committed are the request ids of submissions that were acknowledged, and
	// RolledBack of those that were undone. Default nil: not checked.
	Committed, RolledBack []string
	// Untold are times in which triggers were off, and nobody was told of what
	// they tell of: attempts that ended otherwise than by being completed.
	Untold []Stretch
}

// Stretch is a time from one moment to another, by the database's clock.
type Stretch struct{ From, To time.Time }

// untold are the beginnings and the ends.
func (o Options) untold() []any {
	var from, to []time.Time
	for _, s := range o.Untold {
		from, to = append(from, s.From), append(to, s.To)
	}
	return []any{from, to}
}

// Violation is one thing that must not be.
type Violation struct {
	Rule   string // a word, which stays the same
	Detail string // which task, which stage, and what is the matter
	says   string
}

// String is the violation in one line, with what the rule says.
func (v Violation) String() string {
	return fmt.Sprintf("%s: %s (%s)", v.Rule, v.Detail, v.says)
}

// DB is what Check needs of a database. A *pgxpool.Pool and a *pgx.Conn have it.
type DB interface {
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// mostPerRule bounds how many violations of one rule are listed: where there
// are more, they are likely to be the same one.
const mostPerRule = 50

// settingsSQL lets a rule sort a large history in memory.
const settingsSQL = `select set_config('work_mem', '128MB', true), set_config('jit', 'off', true)`

// Check lists what is wrong with the tables of the pipeline, rule by rule, at
// most 50 things for each. No violations and no error is what one hopes for; an
// error says that it could not be found out. It takes some 100 µs per task that
// there is.
func Check(ctx context.Context, db DB, g store.Graph, o Options) ([]Violation, error) {
	if o.TurnAtMost == 0 {
		o.TurnAtMost = 10 * time.Second
	}
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, fmt.Errorf("check invariants: %w", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // there is nothing to keep
	if _, err := tx.Exec(ctx, settingsSQL); err != nil {
		return nil, fmt.Errorf("check invariants: %w", err)
	}
	words := wordsOf(g)
	var all []Violation
	for _, r := range rules {
		if r.when != nil && !r.when(o) {
			continue
		}
		var args []any
		if r.args != nil {
			args = r.args(o)
		}
		rows, err := tx.Query(ctx, words.fill(r.sql), args...)
		if err != nil {
			return nil, fmt.Errorf("check %s: %w", r.name, err)
		}
		details, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, fmt.Errorf("check %s: %w", r.name, err)
		}
		for _, d := range details {
			all = append(all, Violation{r.name, strings.Join(strings.Fields(d), " "), r.says})
		}
	}
	return all, nil
}

// rule is one thing that must hold. Its statement returns one line of text per
// case in which it does not.
type rule struct {
	name string
	says string
	sql  string
	when func(Options) bool  // nil: always
	args func(Options) []any // nil: none
}
