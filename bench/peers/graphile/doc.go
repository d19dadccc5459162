// Package graphile has Graphile Worker, the Node queue on PostgreSQL, from npm.
//
// # The graph
//
// Graphile Worker has jobs and no graph. Each stage of each task is a job, whose
// task function adds what follows in SQL, on a connection that withPgClient
// lends it: one statement, one round trip, one commit. For the siblings that
// assemble waits for, the same statement puts a bit into the task's row of a
// small table and adds the job if it was the second. Graphile Worker completes
// the job after that, together with others, and has no way of doing so in the
// function's own transaction: a crash in between does the stage once more. That
// makes it a peer of river_fast rather than of river_tx.
//
// # Settings
//
// Those of its page on performance: localQueue of 500 jobs, completion and
// failure in batches (completeJobBatchDelay 0, failJobBatchDelay 0), 25
// connections. It has one pool of workers for all tasks, so there are as many as
// slots of all stages together; with 500 of them it is as fast as with the 24 of
// that page, or with 100. 10 or 50 connections were not faster either. The jobs
// are added by whoever submits, in SQL: add_job for one, add_jobs for many.
//
// # What is not the same
//
// It is said to have completed a stage when the function returns, which is
// before it has written so: that is to its advantage. It deletes jobs that are
// done, and so keeps no history, which Cuelight does; it gives the jobs of a dead
// worker to others after four hours. It has what Cuelight has not, such as
// cron, job keys that replace a waiting job, and named queues that do one job
// after the other. It runs in one thread of Node, beside the server on the same
// cores; this program only reads what it tells.
package graphile
