// Package pgboss has pg-boss, the other Node queue on PostgreSQL, from npm.
//
// # The graph
//
// pg-boss has flows, jobs that depend on each other, but it looks for those
// that have become free no more than once a second (flowIntervalSeconds), and
// notifies nobody of them. So each stage of each task is a job in the stage's
// queue, and the handler inserts what follows, for a whole batch at once. For
// the siblings that assemble waits for, it puts bits into the tasks' rows of a
// small table, and inserts the jobs of those that have both. pg-boss then
// completes the batch with one statement. A crash in between does the batch's
// stage once more: a peer of river_fast rather than of river_tx.
//
// # Settings
//
// It polls, every 2 seconds by default and every 0.5 at best; but it can listen,
// too (useListenNotify, with notify set for the queue), which takes an idle task
// from 2 s to some 10 ms. A worker per queue takes a batch of up to as many jobs
// as the stage has slots, and fetches again at once after a full one
// (burstWhenBatchFull). Each queue has a table of its own (partition), which is a
// third to a half faster under full load; two or four workers with smaller
// batches are slower. 20 connections. This is version 12.30: later ones could not
// be installed, as a package they need was not to be had.
//
// # What is not the same
//
// Batches are what makes it fast: it does with three statements for a hundred
// jobs what River and Graphile Worker need hundreds for, and a larger batch can
// make it faster still. The price is that a batch is only done when its slowest
// job is, so this way of using it suits work that takes no time better than it
// suits transcodes. With a worker for each slot and no batches it did 100 tasks/s
// instead of some thousands.
//
// It is said to have completed a stage when the handler returns, before it has
// written so. It keeps jobs for a week, which is its history. It has what
// Cuelight has not, such as queues of all kinds, cron, and publish and subscribe.
// A task is submitted through a pipe to its process, about 0.1 ms, as it has no
// interface but that for Node.
package pgboss
