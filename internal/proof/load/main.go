// Command load measures what it costs the work that many people look on:
//
//	go run ./internal/proof/load -program bin/cuelight
//
// It lets a daemon with --listen work on a PostgreSQL server of its own: on videos,
// one after another, with the real ffmpeg. Meanwhile it watches how long tasks wait
// from their submission to their claim, by the database's clock, of two kinds: those
// of the daemon, which it is given beside the videos and which end at once, because
// their files are not there; and those of another pipeline in the same database,
// whose only stage does nothing and is worked on by this program.
//
// A second process is the crowd. It alternately keeps away and looks on: with
// streams of all events, some of which are dropped at random and opened again
// with Last-Event-ID, with streams of single tasks, with open pages of the dashboard,
// and with requests at a steady pace for what the API and the dashboard have. At the
// end of each such phase, what every stream was told is held against the database's
// own list of events: it must be all of it, once, in order.
//
// It prints what it measured with and without the crowd, and as its last line one
// JSON object. The exit code is 0 only if nobody missed an event or got one twice,
// every request was answered, and the waits and the daemon's memory with the crowd
// are at most -factor times those without: the 99th percentile of the waits of all
// phases together, and the largest memory over that before the first crowd came.
//
// The daemon and the crowd have a session each, as what a host starts has. The crowd
// takes its processor time from the same machine, on which nothing else should be
// running. It needs Linux, where it is told what processes use. Ended by a signal
// that can be caught, it leaves no process and no file behind.
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

func main() {
	if text := os.Getenv(crowdEnv); text != "" {
		os.Exit(crowdMain(text))
	}
	var p plan
	flag.StringVar(&p.program, "program", "bin/cuelight", "the cuelight to measure")
	flag.IntVar(&p.pairs, "pairs", 4, "phases without the crowd, and as many with it")
	flag.DurationVar(&p.phase, "phase", 20*time.Second, "how long each phase is")
	flag.DurationVar(&p.settle, "settle", 3*time.Second, "how long before a phase nothing is measured")
	flag.IntVar(&p.streams, "streams", 500, "streams of all events")
	flag.IntVar(&p.pages, "pages", 12, "open pages of the dashboard, and streams of single tasks")
	flag.IntVar(&p.rate, "rate", 50, "requests per second; 0 for none")
	flag.IntVar(&p.own, "own", 5, "submissions per second to the daemon")
	flag.IntVar(&p.other, "other", 20, "submissions per second to the other pipeline")
	flag.IntVar(&p.nice, "nice", 10, "how much the priority of ffmpeg is lowered, as by cuelight serve --nice")
	flag.BoolVar(&p.idle, "idle", false, "give the daemon no videos")
	flag.Float64Var(&p.factor, "factor", 1.5, "most that the crowd may cost")
	flag.StringVar(&p.profiles, "profiles", "", "directory for profiles of the daemon, with and without the crowd")
	flag.Parse()
	if flag.NArg() > 0 || p.pairs < 1 || p.phase < time.Second || p.streams < 1 || p.own < 1 || p.other < 1 || p.rate < 0 || p.pages < 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	sum, err := run(ctx, p, os.Stdout)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(sum); err != nil || !sum.sound() || !sum.within(p.factor) {
		os.Exit(1)
	}
}
