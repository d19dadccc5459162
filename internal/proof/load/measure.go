package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// phase is what was measured in a stretch of time, with the crowd or without.
type phase struct {
	crowd      bool
	own, other []float64 // waits until the claim, in ms: the daemon's tasks, and the other pipeline's
	transcodes []float64 // how long those that ended took, in ms
	events     int

	resident, anonymous int64 // the largest of the daemon's memory, in bytes
	heap                map[string]int64

	// Processors that were used, of what there are.
	daemon, postgres, others float64

	seen  sighting
	wrong []string // what streams were told wrongly
}

func (p phase) String() string {
	who := "without"
	if p.crowd {
		who = "with   "
	}
	return fmt.Sprintf("%s the crowd: own waits p50 %.1f p99 %.1f ms (%d), others' p50 %.1f p99 %.1f ms (%d), daemon %.0f MiB, %.2f CPU, PostgreSQL %.2f CPU, %d events, %d transcodes",
		who, percentile(p.own, 50), percentile(p.own, 99), len(p.own), percentile(p.other, 50), percentile(p.other, 99), len(p.other),
		mebibytes(p.resident), p.daemon, p.postgres, p.events, len(p.transcodes))
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

// percentile is the nearest rank; 0 of nothing.
func percentile(all []float64, p int) float64 {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return all[min((len(all)*p+99)/100, len(all))-1]
}

// counters are processor times so far.
type counters struct {
	daemon, postgres, crowd time.Duration
	at                      time.Time
}

func (s *stand) counters() (c counters, err error) {
	c.at = time.Now()
	if c.daemon, err = processor(s.daemon.pid(), false); err != nil {
		return c, err
	}
	if c.postgres, err = family(s.postmaster); err != nil {
		return c, err
	}
	c.crowd, err = processor(s.crowd.pid(), false)
	return c, err
}

// measure measures for one phase.
func (s *stand) measure(ctx context.Context, crowd, profiled bool) (phase, error) {
	p := phase{crowd: crowd}
	before, err := s.counters()
	if err != nil {
		return p, err
	}
	var from, to time.Time
	if err := s.pool.QueryRow(ctx, "select clock_timestamp()").Scan(&from); err != nil {
		return p, err
	}
	s.probe.take()
	profiles := make(chan error, 1)
	go func() {
		name := map[bool]string{true: "with", false: "without"}[crowd]
		if profiled {
			profiles <- s.keepProfiles(ctx, name)
		} else {
			profiles <- nil
		}
	}()
	for end := before.at.Add(s.plan.phase); time.Now().Before(end); {
		if err := s.look(ctx, &p); err != nil {
			return p, err
		}
	}
	if err := <-profiles; err != nil {
		return p, err
	}
	for _, d := range s.probe.take() {
		p.other = append(p.other, milliseconds(d))
	}
	after, err := s.counters()
	if err != nil {
		return p, err
	}
	took := after.at.Sub(before.at).Seconds()
	p.daemon = (after.daemon - before.daemon).Seconds() / took
	p.postgres = (after.postgres - before.postgres).Seconds() / took
	p.others = (after.crowd - before.crowd).Seconds() / took
	if err := s.pool.QueryRow(ctx, "select clock_timestamp()").Scan(&to); err != nil {
		return p, err
	}
	if p.heap, err = s.daemon.heap(ctx); err != nil {
		return p, err
	}
	return p, s.ask(ctx, &p, from, to)
}

// look waits for a moment, and notes the daemon's memory.
func (s *stand) look(ctx context.Context, p *phase) error {
	if err := pause(ctx, 250*time.Millisecond); err != nil {
		return err
	}
	resident, anonymous, err := memory(s.daemon.pid())
	p.resident, p.anonymous = max(p.resident, resident), max(p.anonymous, anonymous)
	return err
}

const ownSQL = `
select coalesce(array_agg((extract(epoch from a.started_at - t.created_at) * 1000)::float8), '{}')
  from attempts a join tasks t on t.id = a.task_id
 where a.stage = 'ingest' and a.attempt = 1 and strpos(t.source, $1) > 0 and t.created_at between $2 and $3`

const transcodesSQL = `
select coalesce(array_agg((extract(epoch from finished_at - started_at) * 1000)::float8), '{}')
  from attempts
 where stage = 'transcode' and outcome = 'completed' and finished_at between $1 and $2`

// ask asks the database for what it knows of a phase.
func (s *stand) ask(ctx context.Context, p *phase, from, to time.Time) error {
	if err := s.pool.QueryRow(ctx, ownSQL, noSuchFile, from, to).Scan(&p.own); err != nil {
		return err
	}
	if err := s.pool.QueryRow(ctx, transcodesSQL, from, to).Scan(&p.transcodes); err != nil {
		return err
	}
	return s.pool.QueryRow(ctx, "select count(*) from events where at between $1 and $2", from, to).Scan(&p.events)
}

// compare holds what streams were told against all events there are, which are in
// order.
func compare(truth []int64, streams []account) (wrong []string) {
	sums := make([]int64, len(truth)+1) // of the first so many
	for i, id := range truth {
		sums[i+1] = sums[i] + id
	}
	for i, a := range streams {
		from, there := slices.BinarySearch(truth, a.From)
		if there {
			from++
		}
		to, there := slices.BinarySearch(truth, a.Last)
		if there {
			to++
		}
		if n, sum := to-from, sums[to]-sums[from]; n != a.N || sum != a.Sum {
			wrong = append(wrong, fmt.Sprintf("stream %d was told of %d events after %d up to %d; there are %d", i, a.N, a.From, a.Last, n))
		}
	}
	return wrong
}
