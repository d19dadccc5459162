// Package simulation predicts what Cuelight does on hosts and databases that are not there: a
// discrete-event simulation of processes, their exchanges, the database's processors, its disk and its
// notifications. The costs are measured; see [Costs].
//
//	costs, err := simulation.NewCosts(result)
//	farm := simulation.Farm{Costs: costs, Processes: 8, Slots: simulation.SameSlots(100), DatabaseCores: 4, Tasks: 50_000}
//	fmt.Println(farm.Run().Throughput)
//
// It has the five stages of the benchmark, and the rules that decide the speed: a process makes one exchange
// after the other; an exchange reports everything that ended meanwhile, lets tasks continue to the next
// stages while slots are free, and claims what is ready; commits share flushes of the disk; commits with a notification
// wait for each other; a notification wakes every process. It leaves out failures, priorities,
// retries, vacuum and checkpoints.
package simulation

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Costs are processor times unless they say otherwise.
type Costs struct {
	// Of the database's backend: of an exchange with the stages of one task, and of one with those of several, without its
	// Reports; of each stage that is completed and continues; of an exchange without reports, after a notification, that
	// claims a task or finds none; of a claim in an exchange with reports that finds none; of each task that is
	// claimed; of a submission.
	Exchange, ClaimExchange, EmptyExchange, Submit Pace
	MixedExchange, Report, EmptyClaim, Claim       time.Duration

	// Contention is what a drained task costs more when several processes drain together: by processes per core.
	Contention []Contention

	// Of the process: of each exchange; of each attempt, before the next exchange and parallel to it.
	ProcessExchange, Attempt, ParallelAttempt time.Duration

	// Of the submitting program.
	Submitter time.Duration

	Flush    time.Duration // of the disk, not of a processor
	Listener time.Duration // of the database, for each process that a notification wakes

	Heartbeat  time.Duration // of the database; each process sends one every HeartbeatInterval
	Background time.Duration // of the database, for each task: the WAL writer, the checkpointer, vacuum
}

// Contention is measured: exchanges that run at the same time read each other's row versions and index entries, the more
// the longer they take.
type Contention struct {
	ProcessesPerCore float64
	PerTask          time.Duration
}

// contention interpolates, and goes on with the last slope.
func (f *Farm) contention() time.Duration {
	at := float64(f.Processes) / float64(f.DatabaseCores)
	last := Contention{}
	for i, next := range f.Costs.Contention {
		if at <= next.ProcessesPerCore || i == len(f.Costs.Contention)-1 {
			share := (at - last.ProcessesPerCore) / (next.ProcessesPerCore - last.ProcessesPerCore)
			return last.PerTask + time.Duration(share*float64(next.PerTask-last.PerTask))
		}
		last = next
	}
	return 0
}

// Pace is a cost that depends on how busy a process is: after pauses, the processor's caches are cold.
type Pace struct{ Busy, Idle time.Duration }

// pacer says which.
type pacer struct {
	last [8]time.Duration // the times of the latest uses
	next int
}

// cost is Idle unless the latest uses were within coldAfter.
func (p *pacer) cost(c Pace, now time.Duration) time.Duration {
	oldest := p.last[p.next]
	p.last[p.next] = now + 1
	p.next = (p.next + 1) % len(p.last)
	if oldest == 0 || now-oldest > coldAfter {
		return c.Idle
	}
	return c.Busy
}

const coldAfter = 12 * time.Millisecond

// HeartbeatInterval is that of a process.
const HeartbeatInterval = 2 * time.Second

// Farm is what is simulated. Several databases are several farms: tasks do not know of each other.
type Farm struct {
	Costs
	Processes     int
	Slots         [stages]int   // of each process
	DatabaseCores int           // of the server
	SharedCores   bool          // the processes and the submitters run on the server's cores, as in the benchmark
	Network       time.Duration // one way, between a process and the database

	Work [stages]time.Duration // means of exponential distributions; 0 is no work

	// Tasks arrive at random at a Rate per second; 0: all at the start.
	Rate  float64
	Tasks int
	Seed  uint64
}

// SameSlots are as many in every stage.
func SameSlots(n int) (all [stages]int) {
	for i := range all {
		all[i] = n
	}
	return all
}

// Prediction is the outcome of a simulation. Durations are sorted; they are those of the last four fifths of the tasks.
type Prediction struct {
	Throughput float64         // tasks/s, until the last completion
	Latencies  []time.Duration // from the arrival of a task to its completion, without its work
	// From ready to started, of the first stage: other stages usually start in the exchange that makes them ready.
	IngestWaits []time.Duration

	DatabaseCores float64 // busy on average
	Exchanges     float64 // per second
}

// Percentile returns a percentile of sorted durations, 0 for none.
func Percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(p/100*float64(len(sorted))), len(sorted)-1)]
}

const stages = 5

// The stages: ingest, transcode and metadata, assemble, publish.
var (
	needs = [stages][]int{{}, {0}, {0}, {1, 2}, {3}}
	feeds = [stages][]int{{1, 2}, {3}, {3}, {4}, {}}
)

// simulation is a Farm in motion. One goroutine does everything.
type simulation struct {
	Farm
	now    time.Duration
	events eventQueue
	number int
	rng    *rand.Rand

	database, workers *processors // workers is the database's if they share cores
	disk              disk
	submissions       pacer
	processes         []*process
	ready             [stages][]*task

	tasks       []*task
	completed   int
	last        time.Duration
	ingestWaits []time.Duration
	exchanges   int

	lastArrival   time.Duration // the rates of a Farm with a Rate are those until then
	untilArrival  time.Duration // used by the database
	exchangesThen int
}

type task struct {
	arrived, completed time.Duration
	worked             time.Duration // the longest way through its stages
	done               [stages]bool
	readyAt            [stages]time.Duration
}

// Run simulates until all tasks are completed.
func (f Farm) Run() Prediction {
	s := &simulation{Farm: f, rng: rand.New(rand.NewPCG(f.Seed, 1))}
	s.database = &processors{s: s, cores: f.DatabaseCores}
	s.workers = s.database
	if !f.SharedCores {
		s.workers = &processors{s: s, cores: math.MaxInt}
	}
	s.disk = disk{s: s}
	for range f.Processes {
		p := &process{s: s}
		for i := range p.free {
			p.free[i] = f.Slots[i]
		}
		s.processes = append(s.processes, p)
		s.after(time.Duration(s.rng.Float64()*float64(HeartbeatInterval)), s.heartbeat)
	}
	s.arrive()
	for s.completed < f.Tasks && len(s.events) > 0 {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.do()
	}
	return s.prediction()
}

// arrive submits the tasks.
func (s *simulation) arrive() {
	at := time.Duration(0)
	for range s.Tasks {
		t := &task{arrived: at}
		s.tasks = append(s.tasks, t)
		if s.Rate == 0 {
			s.ready[0] = append(s.ready[0], t)
			continue
		}
		s.after(at, func() {
			s.lastArrival, s.untilArrival, s.exchangesThen = s.now, s.database.used, s.exchanges
			s.submit(t)
		})
		at += time.Duration(s.rng.ExpFloat64() / s.Rate * float64(time.Second))
	}
	if s.Rate == 0 {
		for _, p := range s.processes {
			p.wake(0)
		}
	}
}

// submit commits a task, notifies, and wakes all processes.
func (s *simulation) submit(t *task) {
	s.workers.use(s.Submitter, func() {
		s.database.use(s.submissions.cost(s.Submit, s.now), func() {
			s.disk.flushWithNotification(func() {
				s.makeReady(t, 0)
				s.notify(0)
			})
		})
	})
}

func (s *simulation) makeReady(t *task, stage int) {
	t.readyAt[stage] = s.now
	s.ready[stage] = append(s.ready[stage], t)
}

// notify wakes all processes; each costs the database a moment.
func (s *simulation) notify(stage int) {
	for _, p := range s.processes {
		s.database.use(s.Listener, func() { s.after(s.Network, func() { p.wake(stage) }) })
	}
}

func (s *simulation) heartbeat() {
	s.database.use(s.Heartbeat, func() {})
	s.after(HeartbeatInterval, s.heartbeat)
}

func (s *simulation) prediction() (p Prediction) {
	for _, t := range s.tasks[len(s.tasks)/5:] {
		p.Latencies = append(p.Latencies, t.completed-t.arrived-t.worked)
	}
	p.IngestWaits = s.ingestWaits[len(s.ingestWaits)/5:]
	slices.Sort(p.Latencies)
	slices.Sort(p.IngestWaits)
	p.Throughput = float64(s.completed) / s.last.Seconds()
	within, used, exchanges := s.now, s.database.used, s.exchanges
	if s.Rate > 0 {
		within, used, exchanges = s.lastArrival, s.untilArrival, s.exchangesThen
	}
	p.DatabaseCores = used.Seconds() / within.Seconds()
	p.Exchanges = float64(exchanges) / within.Seconds()
	return p
}

// event is something that happens at a time; those of the same time happen in their order.
type event struct {
	at     time.Duration
	number int
	do     func()
}

// after schedules an event.
func (s *simulation) after(d time.Duration, do func()) {
	s.number++
	heap.Push(&s.events, event{s.now + d, s.number, do})
}

// eventQueue implements heap.Interface.
type eventQueue []event

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].number < q[j].number
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *eventQueue) Push(e any)   { *q = append(*q, e.(event)) }
func (q *eventQueue) Pop() any {
	e := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return e
}
