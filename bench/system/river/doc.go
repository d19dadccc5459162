// Package river has River (github.com/riverqueue/river), the Go queue on PostgreSQL, in
// three forms.
//
// # The graph
//
// River's free version has jobs and no graph (River Pro has workflows). Each stage of each
// task is a job, and its worker inserts the next jobs:
//
//   - [Tx]: one transaction completes the job (JobCompleteTx) and inserts the next ones
//     (InsertManyTx). A crash can neither lose nor repeat a stage. Compare this form with a
//     system that keeps the same promise.
//   - [Fast]: the worker inserts the next jobs (InsertMany) and returns nil; River completes
//     the job later, together with others. A crash in between repeats the job and the
//     insertion.
//   - [Default]: as Fast, with River's own fetch settings.
//
// Assemble waits for two stages and must be inserted once. Both set their bit in the task's
// row of a small table, "insert … on conflict do update … returning": the one that then sees
// both bits inserts assemble. In Tx this is part of the transaction, so the second stage
// waits for the commit of the first, about a millisecond. A unique job cannot do this: it
// would start with the first of the two. A count in place of the bits would be wrong after a
// repeated job.
//
// # Settings
//
//   - FetchCooldown 1 ms, the least that River accepts; its default of 100 ms makes an idle
//     system wait for it again and again.
//   - A queue per stage, with a worker per slot. A client that has notified a queue less than
//     a cooldown ago does not notify it again, so a job can wait there until the next poll.
//     With one queue for all stages the idle end-to-end time of Default is 1.9 s instead of
//     0.2 s, and Fast's p95 is 28 ms instead of 7 ms. Under full load both are equally fast.
//   - FetchPollInterval 20 ms, as in River's own benchmark, for the same reason: with one
//     queue and the default of 1 s, some tasks took 1 s.
//   - 20 connections: the best of 10 to 100 on two cores, by 20 % over 50.
//   - InsertManyFast, which is COPY, inserts waiting tasks.
//   - The rest is default: the notifications, and completed jobs kept for a day, which is
//     River's history.
//
// # Differences
//
// Fast and Default report Completed when the work has returned. River's completer follows
// within 250 ms and nothing waits for it, which favours them. River has features that
// Cuelight does not have, such as periodic jobs, unique jobs, job arguments of any type and a
// choice of databases. Cuelight keeps the task's history in one row, knows the graph, fences a
// worker that was thought dead, and notices a dead one within seconds; River rescues its jobs
// after an hour by default.
package river
