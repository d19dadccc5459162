// Package subprocess runs a system's workers in another process: the same program, started
// again, which sends its observations through a pipe.
//
//	func main() {
//		subprocess.RunIfChild(systems)
//		…
//		workers, err := subprocess.Start(ctx, system, url, harness.Options{Slots: 10, Observe: observe})
//
// Observations have the time at which they happened, by the wall clock that both processes
// share. Those of several processes may arrive in another order. All have arrived when Stop
// returns. The process ends with the program that started it, even if that is killed.
package subprocess

import (
	"encoding/binary"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
)

// configEnv is the variable with the child's config, as JSON.
const configEnv = "CUELIGHT_BENCH_WORKERS"

// config is what a child runs.
type config struct {
	System   string
	URL      string
	Slots    int
	WorkTime time.Duration
	Stages   []harness.Stage
	Observe  bool
}

// command is a line on the child's standard input. If the input ends without Stop, the
// parent was killed.
type command struct {
	First int64
	N     int // tasks for SubmitAll; 0 for Submit
	Stop  bool
}

// Replies of the child. They use the encoding of observations.
const (
	ready     = harness.Kind(100) // the workers are notified of new tasks
	submitted = harness.Kind(101) // a command is done
	last      = harness.Kind(102) // not sent: no observations follow
)

// recordSize is the size of an encoded observation: kind, stage, task, time in nanoseconds.
const recordSize = 1 + 1 + 8 + 8

func encode(b []byte, o harness.Observation) []byte {
	b = append(b, byte(o.Kind), byte(o.Stage))
	b = binary.LittleEndian.AppendUint64(b, uint64(o.Task))
	return binary.LittleEndian.AppendUint64(b, uint64(o.At.UnixNano()))
}

func decode(b []byte) harness.Observation {
	return harness.Observation{
		Kind: harness.Kind(b[0]), Stage: harness.Stage(b[1]),
		Task: int64(binary.LittleEndian.Uint64(b[2:])),
		At:   time.Unix(0, int64(binary.LittleEndian.Uint64(b[10:]))),
	}
}
