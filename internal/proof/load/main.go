// Command load measures what many clients of the HTTP API cost the work:
//
//	load -program bin/cuelight
//
// It starts a PostgreSQL server of its own and a `cuelight serve --listen`, which publishes one
// video after another with the real ffmpeg. Meanwhile it measures how long tasks wait from their
// submission to their claim, by the database's clock. The files of these tasks do not exist, so that they end at once.
//
// Clients alternately disconnect and connect: streams of all events, some of which are dropped at random and resumed
// with Last-Event-ID, and requests at a steady rate to the API and the dashboard. At the end of each phase with clients,
// load compares the events that each stream received with those in the database: every event must arrive once, in order.
//
// It prints what it measured with and without clients, and one JSON object as the last line. The
// exit code is 0 only if no stream missed an event or received one twice, every request was
// answered, and the waits and the daemon's memory with clients are at most 1.5 times those
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
)

// maxGrowth is the most that waits and memory may grow with clients.
const maxGrowth = 1.5

func main() {
	o := options{phase: 20 * time.Second, warmup: 3 * time.Second, streams: 500, rate: 50, tasksPerSecond: 20}
	flag.StringVar(&o.program, "program", "bin/cuelight", "the cuelight to measure")
	flag.IntVar(&o.pairs, "pairs", 4, "number of phases without clients, and of phases with them")
	flag.Parse()
	if flag.NArg() > 0 || o.pairs < 1 {
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
	if err := json.NewEncoder(os.Stdout).Encode(sum); err != nil || !sum.isCorrect() || !sum.isWithin(maxGrowth) {
		os.Exit(1)
	}
}

// options say what is measured.
type options struct {
	program        string
	pairs          int           // of phases without and with clients
	phase, warmup  time.Duration // of a phase, and before it
	streams        int           // of all events
	rate           int           // requests per second
	tasksPerSecond int
}
