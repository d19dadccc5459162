// Command load measures what many clients of the HTTP API cost the work:
//
//	go run ./internal/proof/load -program bin/cuelight
//
// It starts a PostgreSQL server of its own and a `cuelight serve --listen`, which publishes one
// video after another with the real ffmpeg. Meanwhile it measures how long tasks wait from their
// submission to their claim, by the database's clock. There are two kinds of these tasks: tasks of
// the daemon, whose files do not exist, so that they end at once; and tasks of another pipeline in
// the same database, whose only stage does nothing and is worked on by this program.
//
// A second process is the clients. They alternately disconnect and connect: streams of all events,
// some of which are dropped at random and resumed with Last-Event-ID; streams of single tasks; open
// pages of the dashboard; and requests at a steady rate to the API and the dashboard. At the end of
// each phase with clients, load compares the events that each stream received with those in the
// database: every event must arrive once, in order.
//
// It prints what it measured with and without clients, and one JSON object as the last line. The
// exit code is 0 only if no stream missed an event or received one twice, every request was
// answered, and the waits and the daemon's memory with clients are at most -factor times those
// without. It compares the 99th percentile of the waits of all phases, and the largest memory with
// clients to that before the first clients.
//
// The clients use processor time of the same machine, on which nothing else should run. Load needs
// Linux, which reports what processes use. After a signal that can be caught it leaves no process
// and no file behind.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

func main() {
	proofkit.RunIfChild(clientsEnv, clientsMain)
	var o options
	flag.StringVar(&o.program, "program", "bin/cuelight", "the cuelight to measure")
	flag.IntVar(&o.pairs, "pairs", 4, "number of phases without clients, and of phases with them")
	flag.DurationVar(&o.phase, "phase", 20*time.Second, "duration of a phase")
	flag.DurationVar(&o.warmup, "warmup", 3*time.Second, "time before a phase that is not measured")
	flag.IntVar(&o.streams, "streams", 500, "streams of all events")
	flag.IntVar(&o.pages, "pages", 12, "open pages of the dashboard, and streams of single tasks")
	flag.IntVar(&o.rate, "rate", 50, "requests per second; 0 for none")
	flag.IntVar(&o.daemonRate, "daemon-rate", 5, "submissions per second to the daemon")
	flag.IntVar(&o.otherRate, "other-rate", 20, "submissions per second to the other pipeline")
	flag.IntVar(&o.nice, "nice", 10, "nice value of ffmpeg, as of cuelight serve --nice")
	flag.BoolVar(&o.idle, "idle", false, "give the daemon no videos")
	flag.Float64Var(&o.factor, "factor", 1.5, "most that waits and memory may grow with clients")
	flag.StringVar(&o.profiles, "profiles", "", "directory for profiles of the daemon, with and without clients")
	flag.Parse()
	if flag.NArg() > 0 || !o.areValid() {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	sum, err := run(ctx, o, os.Stdout)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(sum); err != nil || !sum.isCorrect() || !sum.isWithin(o.factor) {
		os.Exit(1)
	}
}

// options are the settings of the command line. All must be set but nice, idle and profiles.
type options struct {
	program               string
	pairs                 int
	phase, warmup         time.Duration
	streams, pages        int
	rate                  int
	daemonRate, otherRate int
	nice                  int
	idle                  bool
	factor                float64
	profiles              string
}

func (o options) areValid() bool {
	return o.pairs >= 1 && o.phase >= time.Second && o.streams >= 1 && o.daemonRate >= 1 && o.otherRate >= 1 &&
		o.rate >= 0 && o.pages >= 0
}
