package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// phase is what was measured in one phase.
type phase struct {
	withClients             bool
	daemonWaits, otherWaits []float64 // of tasks until their claim, in ms
	transcodes              []float64 // durations of those that ended, in ms
	events                  int
	resident, anonymous     int64 // the largest memory of the daemon, in bytes
	heap                    map[string]int64
	// Processors in use, on average.
	daemonCPU, postgresCPU, clientsCPU float64

	observation observation
	mismatches  []string // streams that received other events than there are
}

// String describes the phase in one line.
func (p phase) String() string {
	title := "without clients"
	if p.withClients {
		title = "with clients   "
	}
	return fmt.Sprintf("%s: waits p50 %.1f p99 %.1f ms (%d), other pipeline p50 %.1f p99 %.1f ms (%d), "+
		"daemon %.0f MiB, %.2f CPU, PostgreSQL %.2f CPU, %d events, %d transcodes", title,
		proofkit.Percentile(p.daemonWaits, 50), proofkit.Percentile(p.daemonWaits, 99), len(p.daemonWaits),
		proofkit.Percentile(p.otherWaits, 50), proofkit.Percentile(p.otherWaits, 99), len(p.otherWaits),
		mebibytes(p.resident), p.daemonCPU, p.postgresCPU, p.events, len(p.transcodes))
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

// cpuTimes are the processor times until a moment.
type cpuTimes struct {
	daemon, postgres, clients time.Duration
	at                        time.Time
}

func (h *harness) cpuTimes() (cpuTimes, error) {
	at := time.Now()
	daemon, err := proofkit.UsageOf(h.daemon.PID())
	clients, clientsErr := proofkit.UsageOf(h.clients.PID())
	postgres, postgresErr := proofkit.FamilyCPUTime(h.postmaster)
	return cpuTimes{daemon.CPU, postgres, clients.CPU, at}, errors.Join(err, clientsErr, postgresErr)
}

// measure measures one phase.
func (h *harness) measure(ctx context.Context, withClients, withProfiles bool) (phase, error) {
	p := phase{withClients: withClients}
	before, err := h.cpuTimes()
	if err != nil {
		return p, err
	}
	var from time.Time
	if err := h.pool.QueryRow(ctx, "select clock_timestamp()").Scan(&from); err != nil {
		return p, err
	}
	h.waits.take()
	profiling := make(chan error, 1)
	go func() { profiling <- h.saveProfiles(ctx, withClients, withProfiles) }()
	for end := before.at.Add(h.options.phase); time.Now().Before(end); {
		if err := h.sampleMemory(ctx, &p); err != nil {
			return p, err
		}
	}
	if err := <-profiling; err != nil {
		return p, err
	}
	for _, d := range h.waits.take() {
		p.otherWaits = append(p.otherWaits, milliseconds(d))
	}
	after, err := h.cpuTimes()
	if err != nil {
		return p, err
	}
	seconds := after.at.Sub(before.at).Seconds()
	p.daemonCPU = (after.daemon - before.daemon).Seconds() / seconds
	p.postgresCPU = (after.postgres - before.postgres).Seconds() / seconds
	p.clientsCPU = (after.clients - before.clients).Seconds() / seconds
	if p.heap, err = h.daemon.heap(ctx); err != nil {
		return p, err
	}
	return p, h.readDatabase(ctx, &p, from)
}

// sampleMemory waits for the next sample and reads the daemon's memory.
func (h *harness) sampleMemory(ctx context.Context, p *phase) error {
	if err := ctxsleep.For(ctx, 250*time.Millisecond); err != nil {
		return err
	}
	u, err := proofkit.UsageOf(h.daemon.PID())
	p.resident, p.anonymous = max(p.resident, u.Resident), max(p.anonymous, u.Anonymous)
	return err
}

const phaseSQL = `
select (select coalesce(array_agg((extract(epoch from a.started_at - t.created_at) * 1000)::float8), '{}')
          from attempts a join tasks t on t.id = a.task_id
         where a.stage = 'ingest' and a.attempt = 1 and strpos(t.source, $1) > 0 and t.created_at >= $2),
       (select coalesce(array_agg((extract(epoch from finished_at - started_at) * 1000)::float8), '{}')
          from attempts
         where stage = 'transcode' and outcome = 'completed' and finished_at >= $2),
       (select count(*) from events where at >= $2)`

// readDatabase reads what the database has recorded since the phase began.
func (h *harness) readDatabase(ctx context.Context, p *phase, from time.Time) error {
	return h.pool.QueryRow(ctx, phaseSQL, missingFile, from).Scan(&p.daemonWaits, &p.transcodes, &p.events)
}

// compareStreams compares what streams received with the ids of all events, which are in order.
func compareStreams(ids []int64, streams []streamCount) (mismatches []string) {
	sums := make([]int64, len(ids)+1) // of the first ids
	for i, id := range ids {
		sums[i+1] = sums[i] + id
	}
	countUpTo := func(id int64) int {
		n, isThere := slices.BinarySearch(ids, id)
		if isThere {
			n++
		}
		return n
	}
	for i, s := range streams {
		from, to := countUpTo(s.From), countUpTo(s.Last)
		if to-from != s.N || sums[to]-sums[from] != s.Sum {
			mismatches = append(mismatches, fmt.Sprintf("stream %d received %d events after %d up to %d; there are %d",
				i, s.N, s.From, s.Last, to-from))
		}
	}
	return mismatches
}
