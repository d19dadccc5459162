package invariant

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// Options say what the caller knows. The zero Options check what holds at any time, whatever
// operators do with retry, cancel and override.
type Options struct {
	// Settled says that no fault is present, and that workers for every stage had the time to
	// finish: no stage can be claimed, and none is in progress.
	Settled bool
	// NoRetries says that no operator retried anything: a completed stage was completed once, and
	// attempts are counted without a gap.
	NoRetries bool
	// MaxOrphanTime is how long a claim may outlive its worker: the lease and a sweep.
	// Default 0: not checked.
	MaxOrphanTime time.Duration
	// MaxAttempts is the limit of attempts of each stage. Default nil: not checked.
	MaxAttempts []int
	// MaxTransactionTime is how long a transaction that claims may have taken: a claim carries
	// the time at which its transaction began. Default 10 s.
	MaxTransactionTime time.Duration
	// MaxOvertaking is how many later tasks of the same priority may have started a stage for the
	// first time before a task that was ready for it. It is for runs of one process in which
	// nobody paused a stage, locked rows or changed a priority, and ageing is off. The only tasks
	// that may overtake then are those the process had claimed before. Default nil: not checked.
	MaxOvertaking *int
	// Committed are the request ids of submissions that were acknowledged, RolledBack those of
	// submissions that were rolled back. Default nil: not checked.
	Committed, RolledBack []string
}

// args are the named arguments of the rules.
func (o Options) args(g store.Graph) pgx.NamedArgs {
	stages := g.Stages()
	needing, needed, divided := []string{}, []string{}, []string{}
	for i, name := range stages {
		for _, need := range g.Needs(i) {
			needing, needed = append(needing, name), append(needed, stages[need])
		}
		if g.Divides(i) {
			divided = append(divided, name)
		}
	}
	return pgx.NamedArgs{
		"stages": stages, "needing": needing, "needed": needed, "divided": divided,
		"settled": o.Settled, "no_retries": o.NoRetries, "committed": o.Committed, "rolled_back": o.RolledBack,
		"max_orphan_s": o.MaxOrphanTime.Seconds(), "max_transaction_s": o.MaxTransactionTime.Seconds(),
		"max_attempts": o.MaxAttempts, "max_overtaking": o.MaxOvertaking,
		"max_per_rule": maxPerRule,
	}
}

// Violation is one case in which a rule does not hold.
type Violation struct {
	Rule     string // its name, which stays the same
	Detail   string // which task, which stage, and what is wrong
	sentence string
}

// String describes the violation in one line, with the sentence of the rule.
func (v Violation) String() string {
	return fmt.Sprintf("%s: %s (%s)", v.Rule, v.Detail, v.sentence)
}

// DB is what Check needs of a database. A *pgxpool.Pool and a *pgx.Conn have it.
type DB interface {
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// settingsSQL lets a rule sort a large history in memory. PostgreSQL expects few rows of the tables that
// precede each rule; joined one by one, those of some thousand tasks may take minutes.
const settingsSQL = `
select set_config('work_mem', '128MB', true), set_config('jit', 'off', true), set_config('enable_nestloop', 'off', true)`

// Check lists the violations in the tables of the pipeline, rule by rule, at most 50 for each. An
// error says that it could not find out. It takes some 100 µs per task in the table.
func Check(ctx context.Context, db DB, g store.Graph, o Options) ([]Violation, error) {
	if o.MaxTransactionTime == 0 {
		o.MaxTransactionTime = 10 * time.Second
	}
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, fmt.Errorf("check invariants: %w", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // it changed nothing
	if _, err := tx.Exec(ctx, settingsSQL); err != nil {
		return nil, fmt.Errorf("check invariants: %w", err)
	}
	args := o.args(g)
	var violations []Violation
	for _, r := range rules {
		if r.applies != nil && !r.applies(o) {
			continue
		}
		rows, err := tx.Query(ctx, g.SQL(commonSQL+r.sql+limitSQL), args)
		if err != nil {
			return nil, fmt.Errorf("check %s: %w", r.name, err)
		}
		details, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, fmt.Errorf("check %s: %w", r.name, err)
		}
		for _, detail := range details {
			violations = append(violations, Violation{r.name, strings.Join(strings.Fields(detail), " "), r.sentence})
		}
	}
	return violations, nil
}
