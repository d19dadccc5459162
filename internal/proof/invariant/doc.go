// Package invariant checks that a database of Cuelight keeps its promises. [Check] reads the
// tables of one pipeline, with their history, and lists every violation. Tests and the command
// chaos call it after they have broken things:
//
//	violations, err := invariant.Check(ctx, pool, graph, invariant.Options{Settled: true})
//
// Each rule is one SQL statement in rules.go, next to the sentence that it checks. [Options] say
// which rules apply: the caller knows whether the faults have stopped, and whether an operator
// changed anything. All rules see one snapshot, so the workers may go on working meanwhile.
//
// [Sessions] and [Files] find what is left over outside the tables.
//
// The package changes nothing. It trusts a status that an operator set by hand no more than any
// other: a task that was imported with a completed stage, which has no attempt, is a violation. It trusts the
// clock of the database's host, which must not have been set back.
package invariant
