// Package river has River (github.com/riverqueue/river), the Go queue on
// PostgreSQL, in three forms.
//
// # The graph
//
// River's free version has jobs and no graph (River Pro has workflows). Each
// stage of each task is a job, and whoever does one inserts what follows:
//
//   - [Tx]: the job is completed (JobCompleteTx) and the next ones inserted
//     (InsertManyTx) in one transaction. A crash can neither drop nor double a
//     stage. This is the form to compare with a system that keeps that promise.
//   - [Fast]: the next jobs are inserted (InsertMany) and the worker returns nil;
//     River completes the job later, together with others. A crash in between
//     has the job done, and what follows inserted, once more.
//   - [Default]: as Fast, with River's own fetch settings.
//
// Assemble waits for two siblings, and must be inserted once. Both put their bit
// into the task's row of a small table, "insert … on conflict do update …
// returning": who then sees both bits inserts it. In Tx this is part of the
// transaction, so the second sibling waits for the first one's commit, about a
// millisecond. A unique job cannot do this: it would begin with the first
// sibling. A count in place of the bits would be wrong after a repeated job.
//
// # Settings
//
//   - FetchCooldown 1 ms, the least River takes; its default of 100 ms makes an
//     idle system wait for it again and again.
//   - A queue per stage, with a worker per slot. A client that has notified a
//     queue less than a cooldown ago does not notify it again, so that a job can
//     lie there unheard until the next poll. With one queue for all stages the
//     idle end-to-end time of Default is 1.9 s instead of 0.2 s, and Fast's p95
//     is 28 ms instead of 7 ms. Under full load both are equally fast.
//   - FetchPollInterval 20 ms, as in River's own benchmark, for the same reason:
//     with one queue and the default of 1 s, some tasks took 1 s.
//   - 20 connections: the best of 10 to 100 on two cores, by 20 % over 50.
//   - Waiting tasks are inserted with InsertManyFast, which is COPY.
//   - The rest is default: the notifications, and jobs kept for a day after they
//     are completed, which is River's history.
//
// # What is not the same
//
// Fast and Default say Completed when the work has returned, as nobody waits for
// River's completer there, which follows within 250 ms: that is to their
// advantage. River has what Cuelight has not, such as periodic jobs, unique
// jobs, job arguments of any type and a choice of databases. Cuelight keeps the
// task's whole story in one row, knows the graph, fences a worker that was
// thought dead, and notices a dead one within seconds; River rescues its jobs
// after an hour by default.
package river

import (
	"time"

	"github.com/cuelight/cuelight/bench/harness"
)

// version is that in go.mod.
const version = "River v0.51.0, riverpgxv5"

const (
	cooldown = time.Millisecond
	poll     = 20 * time.Millisecond
)

// Tx is River with the next jobs inserted in the completing transaction.
func Tx() harness.System {
	return &system{name: "river_tx", tx: true, cooldown: cooldown, poll: poll,
		settings: version + ": JobCompleteTx and InsertManyTx in one transaction" + tuned}
}

// Fast is River with the next jobs inserted before it completes this one.
func Fast() harness.System {
	return &system{name: "river_fast", cooldown: cooldown, poll: poll,
		settings: version + ": InsertMany, then completion in bulk, a crash can repeat a stage" + tuned}
}

// Default is Fast with River's default settings for fetching.
func Default() harness.System {
	return &system{name: "river_default",
		settings: version + ": as river_fast, FetchCooldown 100 ms, FetchPollInterval 1 s; a queue per stage, 20 connections"}
}

const tuned = "; FetchCooldown 1 ms, FetchPollInterval 20 ms, a queue per stage, 20 connections"
