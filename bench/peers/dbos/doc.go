// Package dbos has DBOS Transact for Go, which makes functions durable: a workflow records
// each step's result and continues after the last recorded step when it restarts.
//
// # The graph
//
// The pipeline is one workflow function of five steps; dbos.Go starts transcode and metadata
// together. The submitting process runs it without a queue, which is its fastest form: a
// queue adds a poll, of 1 s by default. Nothing is handed over, so there is no join to
// arrange and nothing to wake.
//
// # Settings
//
// The defaults, with 20 connections. The number of workflows is not limited, but a step
// waits for a slot of its stage. Many tasks start at once: their first records queue for
// connections before their steps do, so nearly all are recorded before the first stage
// starts.
//
// # Differences
//
// Each task stays in the process that received it, and after a crash waits for a process
// with the same name; Cuelight's tasks go to any process with a free slot. So its figures
// are those of a durable function and not of a queue. A stage is completed when its step is
// recorded; the end of the workflow follows the last step and is not waited for. DBOS has
// features that Cuelight does not have: workflows that are ordinary code with branches and
// loops, messages, events and timers.
package dbos
