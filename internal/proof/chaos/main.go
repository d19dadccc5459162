// Command chaos shows that nothing is lost, and nothing done twice, while
// everything around the work breaks:
//
//	go run ./internal/proof/chaos [-duration 60s] [-seed N]
//
// It starts a PostgreSQL server of its own, with the settings that a real one
// has, and five worker processes: this program again, composed as `cuelight
// serve` is, with the Runner's default settings, on a pipeline shaped like the
// one for videos whose stages do nothing for some time, and sometimes fail. A
// real `cuelight serve` publishes small videos beside them. Somebody submits all
// the time. After a healthy beginning, processes are killed and stopped,
// sessions ended, the server restarted and frozen, triggers switched off,
// connections cut, delayed and black-holed, rows locked. Then everything is
// mended, and when the work is done it is judged.
//
// # How to read it
//
// The first line has the seed, from which the plan follows: what is done, when
// and to whom (-plan prints it, and does nothing). A repeated run does the same
// things; what they meet differs. Then there is a line per event, with the
// seconds since the torments began, in which a torment has the name it has in
// the plan. The table at the end explains the figures of the last line, which is
// one JSON object:
//
//	submitted    tasks that somebody tried to submit, and did not roll back
//	completed    of these, those with all stages completed
//	dead         those that failed for good
//	lost         those that were acknowledged, and are not there or did not end
//	duplicated   stages completed twice, tokens worked on twice, and tasks that ran
//	             although they were rolled back
//	violations   anything else that must not be; each is printed before the table
//	kills        processes of ours that were ended with SIGKILL
//	restarts     restarts of the server
//	rescue_…_ms  from the death of a worker to the next attempt at what it held
//
// The judge has two witnesses: the database's history, and journals which the
// workers write on their own, before they begin anything and after they end it.
//
// The rescue of the last line is what the default settings promise to take at
// most 10 s (p99): that of a worker which was killed while the database was
// there, and whose end the database could see. Left out are therefore claims
// whose task a torment had locked, or during whose rescue the server was away,
// or had not been back for 10 s; and those of workers that died behind a
// black hole, for which 45 s are promised. The table has those too, and the
// figure without exceptions. The two are null where nothing was rescued.
//
// The exit code is 0 if lost, duplicated and violations are 0, 1 if they are
// not, and 2 if it could not be found out. Nothing is left behind, also after a
// Ctrl-C, and after kill -9 only a temporary directory with the journals and
// logs, which -keep keeps in a directory of one's choice. -only restricts the plan
// to some torments.
//
// As root on Linux every worker is on a host of its own, by name, and one of
// them behind a network interface that is shut down. Otherwise it is black-holed
// by a proxy, as the others are. Without ffmpeg there are no videos.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(roleMain(role))
	}
	var o options
	flag.DurationVar(&o.duration, "duration", time.Minute, "how long to torment")
	flag.Uint64Var(&o.seed, "seed", rand.Uint64()>>12, "what the plan follows from")
	flag.StringVar(&o.keep, "keep", "", "a directory to make, for journals and logs, which stays")
	flag.Func("only", "kinds of torment, with commas in between (default all)", o.choose)
	show := flag.Bool("plan", false, "only print the plan")
	flag.Parse()
	if flag.NArg() > 0 || o.duration < time.Second {
		flag.Usage()
		os.Exit(2)
	}
	o.videos = true
	if *show {
		for _, s := range o.plan() {
			fmt.Println(s)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	sum, err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	fmt.Println(sum)
	if !sum.good() {
		os.Exit(1)
	}
}

// roleEnv makes this program one of its own children.
const roleEnv = "CUELIGHT_CHAOS_ROLE"

// The roles there are.
const (
	roleWorker = "worker"
	roleHolder = "holder" // of a namespace
)

func roleMain(role string) int {
	err := nameHost(os.Getenv(hostEnv))
	switch {
	case err != nil:
	case role == roleWorker:
		err = workerMain()
	default:
		waitForEnd()
	}
	if err != nil {
		fmt.Println("ended:", err)
		return 1
	}
	return 0
}
