package simulation

import (
	"cmp"
	"fmt"
	"time"

	"github.com/cuelight/cuelight/bench/result"
)

// NewCosts takes the costs from a result of the benchmark that measured them: "cost", "cpu", and "growth" and "growth_cpu"
// of processes. It returns an error that names a figure which is missing.
func NewCosts(r *result.Result) (c Costs, err error) {
	of := func(scenario, name string) time.Duration {
		f, ok := r.Find(result.Key{Scenario: scenario, System: "cuelight", Case: name})
		if !ok {
			const hint = "measure with -only cost,cpu,rate,growth_processes"
			err = cmp.Or(err, fmt.Errorf("the result has no figure %s/cuelight/%s; %s", scenario, name, hint))
			return 0
		}
		return time.Duration(f.Median() * float64(time.Millisecond))
	}
	pace := func(name string) Pace { return Pace{of("cost", name+", busy"), of("cost", name+", idle")} }
	few, many := of("cost", "exchange of 10"), of("cost", "exchange of 500")
	c = Costs{
		Exchange: pace("exchange"), ClaimExchange: pace("claim exchange"), Submit: pace("submit"),
		EmptyExchange: pace("empty exchange"),
		Submitter:     of("cost", "submitter"), EmptyClaim: of("cost", "empty exchange, busy"),
		Report: (many - few) / 490, MixedExchange: few - (many-few)/49,
		ProcessExchange: of("cost", "process exchange"), Flush: of("cost", "flush"), Listener: of("cost", "listener"),
		Heartbeat: of("cost", "heartbeat"),
	}
	c.Claim = (of("cost", "claim exchange of 100") - c.EmptyClaim) / 100
	c.Background = max(of("growth_cpu", "processes=1")-stages*c.Report, 0)
	for _, step := range r.Steps("growth_cpu", "cuelight", "processes") {
		each := time.Duration(step.Median() * float64(time.Millisecond))
		c.Contention = append(c.Contention, Contention{step.Value / float64(r.Machine.Cores), max(each-of("growth_cpu", "processes=1"), 0)})
	}
	c.ParallelAttempt = of("cpu", "drained,program") / stages
	if err == nil {
		c.calibrate(of("growth", "processes=1").Seconds()*1000, r.Machine.Cores)
	}
	return c, err
}

// calibrate splits the processor time of attempts into that before the next exchange and that parallel to it, which cannot
// be measured apart, so that one process drains tasks as fast as measured, in tasks/s.
func (c *Costs) calibrate(measured float64, cores int) {
	attempt := c.ParallelAttempt
	low, high := time.Duration(0), attempt
	for range 12 {
		c.Attempt = (low + high) / 2
		c.ParallelAttempt = attempt - c.Attempt
		if c.drain(1, cores).Throughput > measured {
			low = c.Attempt
		} else {
			high = c.Attempt
		}
	}
}

// drain predicts the benchmark's drain on shared cores.
func (c *Costs) drain(processes, cores int) Prediction {
	return Farm{
		Costs: *c, Slots: SameSlots(benchSlots), DatabaseCores: cores, SharedCores: true, Processes: processes, Tasks: benchTasks,
	}.Run()
}

// Point is a measured figure and its prediction.
type Point struct {
	Name                string
	Unit                string
	Measured, Predicted float64
}

// Ratio is predicted / measured.
func (p Point) Ratio() float64 { return p.Predicted / p.Measured }

// The workloads of the benchmark.
const (
	benchSlots     = 100
	benchTasks     = 20_000
	benchRateTasks = 5_000
	benchIdleTasks = 600
	benchIdleRate  = 31.0 // a pause of 27.5 ms, and some 5 ms for the task
)

// Points predicts what a result measured: the throughput of processes, what a task costs the database when they are
// idle, and the median latency of the rates that were sustained.
func Points(r *result.Result, c Costs) (points []Point) {
	farm := Farm{Costs: c, Slots: SameSlots(benchSlots), DatabaseCores: r.Machine.Cores, SharedCores: true}
	for _, step := range r.Steps("growth", "cuelight", "processes") {
		points = append(points, Point{step.Case, "tasks/s", step.Median(), c.drain(int(step.Value), r.Machine.Cores).Throughput})
	}
	for _, step := range r.Steps("growth_idle", "cuelight", "processes") {
		f := farm
		f.Processes, f.Tasks, f.Rate = int(step.Value), benchIdleTasks, benchIdleRate
		each := f.Run().DatabaseCores / f.Rate * 1000
		points = append(points, Point{step.Case + ", one task after the other", "ms of the database", step.Median(), each})
	}
	for _, step := range r.Steps("rate", "cuelight", "rate") {
		kept, ok := r.Find(result.Key{Scenario: "rate_kept", System: "cuelight", Case: step.Case})
		if ok && kept.Median() < result.SustainedShare {
			continue
		}
		f := farm
		f.Processes, f.Tasks, f.Rate = 1, benchRateTasks, step.Value
		p50 := Percentile(f.Run().Latencies, 50)
		points = append(points, Point{step.Case, "ms", step.Percentile(50).Median, result.Milliseconds(p50)})
	}
	return points
}
