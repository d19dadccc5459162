// Package store keeps the tasks of a pipeline in PostgreSQL: one row per task,
// with a status column per stage. It is the whole of Cuelight's memory, and
// what another program embeds to submit tasks and to ask about them.
//
//	pipeline, err := stages.New("podcast", …)    // or store.Video(), the built-in one
//	st := store.New(pool, pipeline.Graph())
//	_, err = st.Migrate(ctx)                     // once, or by `cuelight migrate`
//
//	receipt, err := st.WithTx(tx).Submit(ctx, store.Submission{Source: "episode.wav"})
//
// Package stages does the work; its Runner is the only user of [Store.Turn],
// [Store.Beat] and [Store.Sweep]. A complete program with two pipelines of its
// own stands in docs/example.
//
// # What it promises
//
// A submission is durable once its transaction commits, and was never there
// when that rolls back: the row is the intent, no second system has to be
// told. Two submissions of one source with one RequestID make one task.
//
// A stage is completed at most once. Every claim has a token, drawn by the
// database and never drawn again, and every write of a worker must show the
// token of a claim that still holds; whoever lost it changes nothing.
//
// A stage does not begin before all it needs is completed, and where several
// are needed it begins once. Named constraints say so in the table itself, so
// they hold for hand-written SQL too, and INSERT and UPDATE from psql are as
// good a way as any to submit a task or to repeat a stage.
//
// Whatever happens to a task is told in the outbox, in the transaction in which it
// happens, whoever makes it happen. [Store.Events] reads on after the last event
// that was seen, and misses none: it shows an event only when nothing can come in
// ahead of it any more. [Store.LastEvent] is where to begin for what happens from
// now on. A reader need not poll: it listens on the [Graph.EventsChannel] for what
// workers write, and on the pipeline's other channels for what people do.
//
// No transaction is open while a stage works. Every method is one transaction,
// or part of the caller's; none commits anything else. All times are the
// database's.
//
// # What operators do
//
// [Store.Retry], [Store.Cancel] and [Store.Override] change tasks. [Store.Pause]
// keeps all workers, or those of a host or a stage, from beginning anything new
// until [Store.Resume]; [Store.Drain] has one worker end its work and stop.
// [Store.Audited] does any of these and writes down who did it, both or neither.
//
// # What it does not
//
// The work of a stage may be done more than once: by a worker that lost its
// claim without knowing, and by the one that has it now. What is done outside
// the database must bear that.
//
// No task is deleted. Finished ones and their history stay until somebody deletes
// the tasks; claiming costs the same however many there are. Events are deleted,
// after a week or what the Runner's KeepEvents says, so a reader that stays away for
// longer has to begin anew with what the tasks are then.
//
// The tables belong to the schema that is first in the connection's
// search_path. Migrate refuses to touch a table of the same name that is not
// Cuelight's; a schema of one's own (search_path=cuelight in the connection
// string) keeps them apart.
package store
