// Package apart runs a contestant's crew in a process of its own: the same
// program, started anew, which tells what happens over a pipe.
//
//	func main() {
//		all := []harness.Contestant{…}
//		if apart.Called() {
//			os.Exit(subprocess.Main(all))
//		}
//		…
//		crew, err := subprocess.Start(ctx, all[0], url, harness.Options{Slots: 10, Observe: observe})
//
// Moments have the time of the process they happened in, by the wall clock,
// which is the same for both. They are on their way as soon as the pipe takes
// them; those of several processes may arrive in another order than they
// happened in. All have arrived when Stop returns. The process ends when the one
// that started it does, however that comes about.
package subprocess

import (
	"encoding/binary"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
)

// crewEnv makes this program a crew: the order, as JSON.
const crewEnv = "CUELIGHT_BENCH_CREW"

// order is what a crew is to be.
type order struct {
	Contestant string
	URL        string
	Slots      int
	Work       time.Duration
	Only       []harness.Stage
	Observe    bool
}

// command is a line on the crew's standard input: so many tasks to be
// submitted, or one by Submit if N is 0; or to stop. When there is no more
// without that, the program that started the crew was killed.
type command struct {
	First int64
	N     int
	Stop  bool
}

// What a crew says beside moments.
const (
	ready     = harness.Kind(100) // it hears of new tasks
	submitted = harness.Kind(101) // the command was done
)

// A record is what, stage, the task's number and the time in nanoseconds.
const recordSize = 1 + 1 + 8 + 8

func encode(b []byte, m harness.Observation) []byte {
	b = append(b, byte(m.Kind), byte(m.Stage))
	b = binary.LittleEndian.AppendUint64(b, uint64(m.Task))
	return binary.LittleEndian.AppendUint64(b, uint64(m.At.UnixNano()))
}

func decode(b []byte) harness.Observation {
	return harness.Observation{
		Kind: harness.Kind(b[0]), Stage: harness.Stage(b[1]),
		Task: int64(binary.LittleEndian.Uint64(b[2:])),
		At:   time.Unix(0, int64(binary.LittleEndian.Uint64(b[10:]))),
	}
}
