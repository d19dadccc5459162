// Package invariant says whether a database of Cuelight's keeps its promises:
// it reads the tables of one pipeline, with their history, and lists whatever
// must not be. Tests call it after they have broken things.
//
//	violations, err := invariant.Check(ctx, pool, graph, invariant.Options{Settled: true})
//
// Each rule is one statement; they stand in rules.go, with what they say. Which
// apply depends on what the caller knows and the database does not: whether
// the faults have stopped, and whether an operator had a hand in it. All of
// them see one snapshot, so it may be asked beside workers that work.
//
// [Connections], [Processes] and [Files] find what is left over outside the
// tables; for goroutines there is goleak.
//
// It changes nothing. It trusts the statuses that people set by hand no more
// than any others: a stage that was made completed in psql, without an attempt,
// is a violation. It also trusts the clock of the database's host, which must not
// have been set back.
package invariant
