package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// sample returns a result with every figure, with invented values.
func sample() *Result {
	r := New("full")
	r.StartedAt = time.Date(2026, 11, 20, 18, 5, 0, 0, time.UTC)
	r.DurationSeconds = 1500
	r.Commit = "0123456789abcdef0123456789abcdef01234567"
	r.Machine = map[string]string{"processor": "Some CPU, 2 cores", "database on": "ext4 on /dev/vda"}
	r.Settings["cuelight"] = "one process, ten connections"
	r.Settings["postgres"] = "shared_buffers=4GB | max_wal_size=8GB"
	r.Skip("transcode/cuelight", "no ffmpeg")
	s := sampler{r, rand.New(rand.NewPCG(1, 2))}
	for i, name := range []string{"commit", "commits5", "notify"} {
		ms := []float64{0.6, 1.7, 0.25}[i]
		s.spread(name, floorSystem, "idle", ms)
		s.spread(name, floorSystem, "tight", ms/2.5)
	}
	s.spread("commits5", floorSystem, "commit_delay=2ms", 12.1)
	for _, c := range []struct {
		name         string
		e2e, maxRate float64
		drain        float64
	}{
		{cuelightSystem, 2.4, 4000, 21_300}, {"river_tx", 6.9, 350, 410}, {"river_fast", 6.5, 900, 1020},
		{"river_default", 2034, 0, 0}, {"polling_5s", 12_480, 0, 0},
	} {
		s.spread("e2e", c.name, "idle", c.e2e)
		s.spread("hop", c.name, "", c.e2e/7)
		if c.drain > 0 {
			s.value("drain", c.name, "tasks=5000", "tasks/s", c.drain)
		}
		for _, rate := range []float64{50, 100, 200, 400, 800, 1500, 3000} {
			if c.maxRate == 0 || rate > 2*c.maxRate {
				break
			}
			caseName := fmt.Sprintf("rate=%v", rate)
			s.spread("rate", c.name, caseName, c.e2e*(1+math.Pow(rate/c.maxRate, 2)))
			r.Add(Key{Scenario: "rate_kept", System: c.name, Case: caseName}, "share",
				FromValue(min(1, c.maxRate/rate)))
		}
	}
	s.spread("e2e", cuelightSystem, "commit_delay=2ms", 13.1)
	s.spread("hop_other", cuelightSystem, "", 0.6)
	s.value("drain", cuelightSystem, "tasks=50000", "tasks/s", 22_000)
	for i, n := range []int{1, 2, 4, 8} {
		s.value("processes", cuelightSystem, fmt.Sprintf("processes=%d", n), "tasks/s",
			[]float64{21e3, 28e3, 26.5e3, 20.5e3}[i])
	}
	for i, n := range []int{0, 100_000, 1_000_000} {
		s.value("grown", cuelightSystem, fmt.Sprintf("finished=%d", n), "tasks/s", []float64{21e3, 21.1e3, 20.6e3}[i])
	}
	s.spread("snapshot", cuelightSystem, "before", 10)
	s.spread("snapshot", cuelightSystem, "held", 12)
	s.value("snapshot_kept", cuelightSystem, "held", "share", 1)
	s.value("work20ms", cuelightSystem, "slots=32", "share", 0.93)
	s.value("order", cuelightSystem, "tasks=600", "tasks", 1)
	s.value("idle_daemon", cuelightSystem, "queries", "queries/s", 0.4)
	s.value("idle_daemon", cuelightSystem, "cpu", "share of a core", 0.0021)
	s.value("idle_daemon", cuelightSystem, "memory", "MiB", 31)
	s.spread("start", cuelightSystem, "idle", 1.4)
	s.spread("start", "cuelight_remote", "idle", 2.1)
	s.spread("http", "cuelight_remote", "idle", 0.2)
	s.value("start_beyond", "cuelight_remote", "idle", "ms", 1.7)
	s.value("remote_drain", cuelightSystem, "tasks=5000", "tasks/s", 20_000)
	s.value("remote_drain", "cuelight_remote", "tasks=5000", "tasks/s", 18_000)
	s.value("waiting_workers", cuelightSystem, "workers=1000,queries", "queries/s", 0.8)
	s.value("waiting_workers", cuelightSystem, "workers=1000,cpu", "share of a core", 0.03)
	s.value("waiting_workers", cuelightSystem, "workers=1000,memory", "MiB", 55)
	s.value("waiting_workers", cuelightSystem, "workers=1000,added memory", "MiB", 40)
	s.value("notifies", cuelightSystem, "", "per task", 0.0016)
	for _, clip := range []string{"bunny", "phone_hdr"} {
		for i, name := range []string{cuelightSystem, "ffmpeg_bare"} {
			f := []float64{1.02, 1}[i]
			s.value("transcode", name, "clip="+clip+",cpu", "CPU s", 24*f)
			s.value("transcode", name, "clip="+clip+",wall", "wall s", 13*f)
		}
	}
	return r
}

const rounds = 3

type sampler struct {
	*Result
	random *rand.Rand
}

func (s sampler) spread(scenario, system, caseName string, ms float64) {
	for range rounds {
		samples := make([]float64, 120)
		for i := range samples {
			samples[i] = ms * (0.9 + 0.1*math.Abs(s.random.NormFloat64()) + 0.05*s.random.ExpFloat64())
		}
		s.Add(Key{Scenario: scenario, System: system, Case: caseName}, "ms", fromSamples(samples))
	}
}

func (s sampler) value(scenario, system, caseName, unit string, v float64) {
	for range rounds {
		s.Add(Key{Scenario: scenario, System: system, Case: caseName}, unit,
			FromValue(v*(1+0.01*s.random.NormFloat64())))
	}
}

// fromSamples returns a round of samples in ms.
func fromSamples(ms []float64) Round {
	samples := make([]time.Duration, len(ms))
	for i, v := range ms {
		samples[i] = time.Duration(v * float64(time.Millisecond))
	}
	return FromDurations(samples)
}
