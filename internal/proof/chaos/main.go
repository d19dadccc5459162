// Command chaos shows that nothing is lost, and no stage completed twice, while processes, the
// network and the database fail:
//
//	chaos [-duration 60s] [-seed N]
//	chaos -failover kill
//
// It starts a PostgreSQL server of its own, with production settings, and processes that are this program again: five
// workers, composed as `cuelight serve` is with the Runner's default settings, three remote workers, composed as
// `cuelight work` is, and their two coordinators. The pipeline has the shape of the one for videos; the stages only
// wait, and sometimes fail. A proxy is in front of what each worker connects to. If ffmpeg is there, a real
// `cuelight serve` publishes small videos. The program submits tasks all the time: some require a remote worker,
// a third have users, who take turns, and some have a context; both must be there at the end.
//
// After a healthy phase it injects faults, which plan.go lists. It also deletes tasks in every way that store.Delete has,
// and restores and purges some of them. Then it ends all faults, waits until the tasks are finished, and checks the
// result: a restored task is finished, and a purged one has no rows left and its files were removed. The workers with the
// database have a stages.Retention for that, which also deletes tasks a third of the duration after their end, until the
// faults have ended. The logs must show that such a task was finished, and that its published files stay.
//
// With -failover there is one fault. Three workers know the addresses of a primary and of its
// synchronous standby, and no worker is remote. The primary is killed, or refuses to write (readonly),
// and the standby is promoted two seconds later. Then every submission must be acknowledged, too.
//
// # How to read the output
//
// The first line has the seed: a run with the same seed injects the same faults, although they meet other work. Each
// further line is an event, with the seconds since the first fault. The last line is one JSON object, which the table
// before it explains:
//
//	submitted    tasks that were submitted and not rolled back
//	completed    of these, tasks with all stages completed
//	dead         tasks with a dead stage
//	deleted      tasks that were deleted and not restored
//	restored     tasks that were deleted and restored
//	purged       of the deleted ones, tasks of which nothing is left
//	expired      of the submitted ones, tasks that retention deleted
//	lost         acknowledged tasks that do not exist or are not finished
//	duplicated   stages completed twice, tokens used by two executions, and tasks that ran
//	             although their submission was rolled back
//	violations   everything else that must not happen; each is printed after the table
//	kills        processes that were ended with SIGKILL
//	restarts     restarts of the server
//	recovery_…   time from the death of a worker to the next attempt at what it had claimed
//	remote_…     the same, of remote workers
//	switchover_… time from the death of a coordinator until a remote worker's next outcome is recorded
//	outage_ms    with -failover, the longest time between two acknowledgements of submissions
//
// A task that was to be purged may still be a deleted one at the end if the process that had begun to purge it was
// killed then, or the server was away: others continue after five minutes.
//
// The check compares two independent records: the history in the database, and the logs that the
// workers write before they start an execution and after they end it.
//
// The default settings promise a recovery within 10 s (p99) when a worker is killed while the database is available and
// can notice its end, or its coordinator can. recovery_p50_ms and recovery_p99_ms therefore leave out claims that were
// recovered while a fault locked rows or cancelled queries, while the server was away or less than 10 s after that, and
// workers whose end was hidden, for which the promise is 45 s. The table has all of them. After the kill of a coordinator,
// remote workers go on at the other one within 5 s. A claim of a remote worker that expires although only a coordinator
// failed is a violation.
//
// The exit code is 0 if lost, duplicated and violations are 0, 1 if they are not, and 2 if chaos
// could not find out. It leaves nothing behind, also after a Ctrl-C, except the directory with the logs if something
// was wrong or it was killed.
//
// As root on Linux every worker has a host name of its own.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

func main() {
	proofkit.RunIfChild(workerEnv, workerMain)
	proofkit.RunIfChild(coordinatorEnv, coordinatorMain)
	var o options
	flag.DurationVar(&o.duration, "duration", time.Minute, "how long to inject faults")
	flag.Uint64Var(&o.seed, "seed", rand.Uint64()>>12, "determines the faults")
	flag.Func("failover", "only fail over to a standby; the primary fails by kill or readonly", o.setFailover)
	flag.Parse()
	if flag.NArg() > 0 || o.duration < time.Second {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	sum, err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	if err := json.NewEncoder(os.Stdout).Encode(sum); err != nil || !sum.passed() {
		os.Exit(1)
	}
}

// options are the settings of the command line.
type options struct {
	seed     uint64
	duration time.Duration
	failover faultKind     // "": the plan of the seed
	healthy  time.Duration // before the first fault. Default: 8 s, or 20 s, in which each worker sweeps twice
}

func (o *options) setFailover(how string) error {
	o.failover = map[string]faultKind{"kill": failoverKill, "readonly": failoverReadOnly}[how]
	if o.failover == "" {
		return fmt.Errorf("unknown way to fail %q; allowed: kill, readonly", how)
	}
	return nil
}

// plan returns the faults of this run.
func (o *options) plan() plan {
	if o.failover != "" {
		return plan{{duration: promoteAfter, kind: o.failover, worker: noWorker}}
	}
	return newPlan(o.seed, o.duration)
}
