package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"time"

	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// workerEnv makes this program a worker on the database it names.
const workerEnv = "CUELIGHT_FAILOVER_WORKER"

// atWork is what a worker says when it is registered.
const atWork = "at work"

// slots is how many tasks a worker works on at once in each stage.
const slots = 4

// pipeline has the shape of the one for videos, and stages that do nothing for
// 5 to 50 ms.
func pipeline() *stages.Pipeline {
	stage := func(name string, needs ...string) stages.Stage {
		return stages.Stage{Name: name, Needs: needs, Workers: slots, Work: doNothing}
	}
	p, err := stages.New("failover",
		stage("ingest"),
		stage("transcode", "ingest"),
		stage("metadata", "ingest"),
		stage("assemble", "transcode", "metadata"),
		stage("publish", "assemble"),
	)
	if err != nil {
		panic(err) // it is as constant as can be
	}
	return p
}

func graph() store.Graph { return pipeline().Graph() }

func doNothing(ctx context.Context, job *stages.Job) (any, error) {
	return job.Source, pause(ctx, 5*time.Millisecond+rand.N(45*time.Millisecond))
}

// drain is what a worker is told when it is to end in good order.
const drain = "drain\n"

// workerMain works until it is told to drain on its standard input. When that
// ends without a word, the program that started it was killed.
func workerMain(address string) int {
	signal.Ignore(os.Interrupt) // a Ctrl-C is for that program
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		if word, _ := io.ReadAll(os.Stdin); string(word) != drain {
			os.Exit(1)
		}
		cancel()
	}()
	if err := work(ctx, address); err != nil {
		fmt.Println("ended:", err)
		return 1
	}
	return 0
}

// work is what `cuelight serve` does, without all that surrounds it.
func work(ctx context.Context, address string) error {
	pool, err := connect(ctx, address)
	if err != nil {
		return err
	}
	defer pool.Close()
	p := pipeline()
	listener := notify.New(pool, notify.Options{Channels: p.Channels(), OnChange: func(connected bool, err error) {
		if !connected {
			fmt.Println("hears no notifications:", progresslog.Brief(err))
		} else {
			fmt.Println("hears notifications")
		}
	}})
	runner := stages.Runner{Pool: pool, Pipeline: p, Wakes: listener, Observe: tell}
	return runner.Run(ctx)
}

func tell(e stages.Event) {
	switch e.Kind {
	case stages.WorkerStarted:
		fmt.Println(atWork)
	case stages.DatabaseLost:
		fmt.Println("has no database:", progresslog.Brief(e.Err))
	case stages.DatabaseBack:
		fmt.Println("has its database back")
	case stages.AttemptFailed, stages.StageDead:
		fmt.Println(e.Kind, e.Stage, progresslog.Brief(e.Err))
	case stages.WorkerLost, stages.AttemptsExpired:
		fmt.Println("says", e.Kind)
	}
}
