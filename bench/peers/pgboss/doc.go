// Package pgboss has pg-boss, the other Node queue on PostgreSQL, from npm.
//
// # The graph
//
// pg-boss has flows, jobs that depend on each other, but it looks for jobs that have become
// ready at most once a second (flowIntervalSeconds) and sends no notification for them. So
// each stage of each task is a job in the stage's queue, and the handler inserts the next
// jobs for a whole batch at once. For the two stages before assemble it sets bits in the
// tasks' rows of a small table and inserts the jobs of those that have both. pg-boss then
// completes the batch with one statement. A crash in between repeats the batch's stage: it
// is a peer of river_fast and not of river_tx.
//
// # Settings
//
// It polls, every 2 seconds by default and every 0.5 at best, but it can also listen
// (useListenNotify, with notify set for the queue), which reduces an idle task from 2 s to
// some 10 ms. A worker per queue takes a batch of up to as many jobs as the stage has slots,
// and fetches again at once after a full one (burstWhenBatchFull). Each queue has a table of
// its own (partition), which is a third to a half faster under full load; two or four
// workers with smaller batches are slower. 20 connections. This is version 12.30: later
// ones could not be installed, because a package they need was not available.
//
// # Differences
//
// Batches make it fast: it needs three statements for a hundred jobs where River and
// Graphile Worker need hundreds, and a larger batch can make it faster still. But a batch is
// only done when its slowest job is, so this suits work that takes no time better than it
// suits transcodes. With a worker for each slot and no batches it did 100 tasks/s instead of
// some thousands.
//
// A stage counts as completed when the handler returns, before that is recorded. It keeps
// jobs for a week, which is its history. It has features that Cuelight does not have, such
// as queues of all kinds, cron, and publish and subscribe. A task is submitted through a pipe
// to its process, which takes about 0.1 ms, because it has an interface for Node only.
package pgboss
