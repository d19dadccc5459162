// Command failover shows that nothing is lost when the database moves to
// another server:
//
//	go run ./internal/proof/failover
//
// From the installed PostgreSQL it makes a primary and a synchronous standby,
// lets several worker processes work on a pipeline of five stages, submits to
// it all the time, and then kills the primary and promotes the standby. The
// processes know both servers (a connection string with two hosts and
// target_session_attrs=read-write) and go on by themselves. With -readonly the
// primary is not killed but refuses to write, as one does that was demoted.
//
// At the end every submission that was acknowledged must be there and
// completed, each stage of it once. It prints what happens, and as its last
// line one JSON object; the exit code is 0 only if nothing was lost, nothing was
// done twice, everything was completed and no worker had to be restarted.
//
// It leaves no process and no file behind, however it ends.
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
	if address := os.Getenv(workerEnv); address != "" {
		os.Exit(workerMain(address))
	}
	var p plan
	flag.BoolVar(&p.readOnly, "readonly", false, "let the primary refuse to write instead of killing it")
	flag.DurationVar(&p.load, "load", 24*time.Second, "how long to submit")
	flag.DurationVar(&p.before, "before", 8*time.Second, "how long before the primary fails")
	flag.DurationVar(&p.away, "away", 2*time.Second, "how long until the standby is promoted")
	flag.IntVar(&p.workers, "workers", 3, "worker processes")
	flag.IntVar(&p.rate, "rate", 100, "submissions per second")
	flag.Parse()
	if flag.NArg() > 0 || p.before >= p.load || p.workers < 1 || p.rate < 1 {
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
		fmt.Fprintln(os.Stderr, "failover:", err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(sum); err != nil || !sum.good() {
		os.Exit(1)
	}
}
