package store

import (
	"context"
	"strings"
	"text/template"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DB is what a Store needs of a database. A *pgxpool.Pool, a *pgx.Conn and a
// pgx.Tx all have it.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Store is one pipeline's tables in one database. It holds no state of its
// own: any number of Stores, in any number of processes, may work on the same
// tables, and a Store may be used by many goroutines at once.
type Store struct {
	db    DB
	graph Graph
	sql   *statements
}

// New returns the Store of a pipeline. It does not touch the database; see
// [Store.Migrate] for making the tables and [Store.Check] for looking whether
// they are there.
func New(db DB, g Graph) *Store {
	return &Store{db: db, graph: g, sql: newStatements(g)}
}

// WithTx returns the same Store inside the caller's transaction: what it does
// becomes true when the caller commits, and never was when the caller rolls
// back.
func (s *Store) WithTx(tx pgx.Tx) *Store {
	return &Store{db: tx, graph: s.graph, sql: s.sql}
}

// DB is what the Store works in, such as the caller's transaction: for what has
// tables of its own beside those of the Store.
func (s *Store) DB() DB { return s.db }

// Graph is the pipeline's shape.
func (s *Store) Graph() Graph { return s.graph }

// statements are the texts of one pipeline's statements. They name the
// pipeline's table and its stages' columns, which parameters cannot, so they
// are written once, when the Store is made, from the templates that stand
// above the methods that send them.
type statements struct {
	submitOne, submit            string
	submitted                    string
	complete, completeRanked     string
	claim, claimAfter            []string // by stage
	claimRest, claimAged         []string
	aged, mature                 []string
	look, end, lapse             []string
	held, lost, settled          string
	lose, survey                 string
	workerStarted, leave, giveUp string
	progress, events, forget     string
	get, byTail, history         string
	result, counts               string
	retry, cancel, matching      string
	retryMatching, retryDead     string
	override                     string
	reads                        reads
}

func newStatements(g Graph) *statements {
	w := g.words()
	whole := func(text string) string { return fill(text, w) }
	type variant struct{ After, Rest, Aged bool }
	each := func(text string, v variant) []string {
		var out []string
		for i := range w.Stages {
			out = append(out, fill(text, struct {
				words
				Stage stageWords
				Nth   int
				variant
			}{w, w.Stages[i], i + 1, v}))
		}
		return out
	}
	return &statements{
		submitOne: whole(submitOneSQL), submit: whole(submitSQL), submitted: whole(submittedSQL),
		complete: fill(completeSQL, completeTemplate{w, false}), completeRanked: fill(completeSQL, completeTemplate{w, true}),
		claim: each(claimSQL, variant{}), claimAfter: each(claimSQL, variant{After: true}), claimRest: each(claimSQL, variant{Rest: true}),
		claimAged: each(claimSQL, variant{Aged: true}), aged: each(agedSQL, variant{}),
		mature: each(promoteSQL, variant{}), look: each(readySQL, variant{}),
		end: each(failSQL, variant{}), lapse: each(expireClaimsSQL, variant{}),
		held: whole(findHeldSQL), lost: whole(findLostSQL), settled: whole(findRecordedSQL),
		lose: whole(expireWorkersSQL), survey: whole(surveySQL),
		workerStarted: whole(workerStartedSQL), leave: whole(deregisterSQL), giveUp: whole(expireDeadWorkersSQL),
		progress: whole(progressSQL), events: whole(eventsSQL), forget: whole(pruneEventsSQL),
		get: whole(getSQL), byTail: whole(byTailSQL), history: whole(historySQL),
		result: whole(resultSQL), counts: whole(countsSQL),
		retry: whole(retrySQL), cancel: whole(cancelSQL), matching: whole(matchingSQL),
		retryMatching: whole(retryMatchingSQL), retryDead: whole(retryDeadSQL),
		override: whole(overrideSQL),
		reads:    newReads(w),
	}
}

func fill(text string, data any) string {
	t := template.Must(template.New("").Funcs(template.FuncMap{
		"arg": func(first, i int) int { return first + i },
	}).Parse(text))
	var b strings.Builder
	if err := t.Execute(&b, data); err != nil {
		panic(err) // the texts are part of the program
	}
	return strings.TrimSpace(b.String())
}
