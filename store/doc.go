// Package store keeps the tasks of a pipeline in PostgreSQL: one row per task, with a
// status column per stage. Programs embed it to submit tasks, to read them, and to
// operate on them.
//
//	pipeline, err := stages.New("podcast", …)
//	st := store.New(pool, pipeline.Graph())
//	_, err = st.Migrate(ctx) // creates the tables or adds stages; `cuelight migrate` for the video pipeline
//
//	receipt, err := st.WithTx(tx).Submit(ctx, store.Submission{Source: "episode.wav"})
//
// The Runner of package stages does the work, through package store/engine. docs/example
// is a complete program with two pipelines.
//
// # Guarantees
//
// A submission is durable once its transaction commits, and does not exist if it is rolled
// back. Two submissions of one source with the same RequestID create one task.
//
// A stage is completed at most once. Every claim has a unique token, and every write of a
// worker must match the token of a valid claim; a worker that lost its claim changes nothing.
//
// A stage does not start before all stages it needs are completed, and then it starts once.
// Named constraints of the table enforce it, for SQL by hand as well: INSERT and UPDATE in
// psql may submit tasks and retry stages.
//
// Every change of a task is recorded as an event, in the transaction that makes it.
// [Store.Events] reads the events after an id and misses none: it shows an event only when
// none can appear before it any more. [Store.EventWatermark] is the id to start from for
// future events. Readers need not poll: the channels of the [Graph] announce events.
//
// No transaction is open while a stage works. Every method is one transaction or part of the
// caller's. All times are the database's.
//
// # Operating
//
// [Store.Retry], [Store.Cancel] and [Store.Override] change tasks. [Store.Pause] stops claims
// for all workers, a host or a stage until [Store.Resume]; [Store.DrainWorker] makes one
// worker finish its work and stop. [Store.InTx] does any of these together with statements
// of the caller.
//
// # Limits
//
// The work of a stage may run more than once: on a worker that lost its claim without
// knowing it, and on the one that has the claim now. Its effects outside the database must
// allow that.
//
// Tasks and their history are deleted by [Store.Delete] and [Store.Prune] alone; the cost of a claim does not grow with them. Events
// are deleted after a week, or the Runner's KeepEvents; a reader that stays away for longer
// must read the tasks again.
//
// The tables are in the first schema of the connection's search_path. Migrate refuses tables
// of the same name that are not Cuelight's; a schema for Cuelight (search_path=cuelight in the
// connection string) avoids the conflict.
package store
