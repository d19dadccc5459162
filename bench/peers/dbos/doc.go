// Package dbos has DBOS Transact for Go, which makes functions durable: a
// workflow writes down each step's result, and after a crash goes on behind the
// last one.
//
// # The graph
//
// The pipeline is one workflow function of five steps, transcode and metadata
// being begun together (dbos.Go). It is run where it is submitted, without a
// queue, which is its fastest form: a queue adds a poll, of 1 s by default. There
// is no hand-off at all, so it has no fan-in to arrange, and nothing to be woken.
//
// # Settings
//
// Its defaults, with 20 connections. The number of workflows is not limited, but
// a step waits for one of its stage's slots. Many tasks are begun at once: as
// their beginnings queue for connections before their steps do, nearly all are
// written down before the first stage begins.
//
// # What is not the same
//
// Each task stays in the process that was given it, and after a crash waits for
// one with the same name; Cuelight's go to whichever has a free slot. So its
// figures are those of a durable function, not of a queue. A stage is completed
// when its step is written down; the workflow's own end comes after the last,
// and is not waited for. It has what Cuelight has not: workflows that are
// ordinary code, with branches and loops, messages, events and timers.
package dbos
