// Package graphile has Graphile Worker, the Node queue on PostgreSQL, from npm.
//
// # The graph
//
// Graphile Worker has jobs and no graph. Each stage of each task is a job, whose function
// adds the next jobs in SQL on a connection from withPgClient: one statement, one round
// trip, one commit. For the two stages before assemble, the same statement sets a bit in
// the task's row of a small table, and the second one adds the job. Graphile Worker then
// completes the job, together with others, and cannot do so in the function's own
// transaction: a crash in between repeats the stage. It is therefore a peer of river_fast
// and not of river_tx.
//
// # Settings
//
// Those of its page on performance: localQueue of 500 jobs, completion and failure in
// batches (completeJobBatchDelay 0, failJobBatchDelay 0), 25 connections. It has one pool of
// workers for all tasks, with as many workers as all stages together have slots: 500 are as
// fast as the 24 of that page, or 100. 10 or 50 connections were not faster. The submitting
// process adds jobs in SQL: add_job for one, add_jobs for many.
//
// # Differences
//
// A stage counts as completed when the function returns, before that is recorded, which
// favours Graphile Worker. It deletes completed jobs and so keeps no history; Cuelight does.
// It gives the jobs of a dead worker to others after four hours. It has features that
// Cuelight does not have, such as cron, job keys that replace a waiting job, and named queues
// that run one job at a time. It runs in one thread of Node, next to the server on the same
// cores; this program only reads its reports.
package graphile
