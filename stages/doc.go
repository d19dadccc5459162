// Package stages does the work of a pipeline: it says which stages there are,
// claims tasks for them, runs Go functions in bounded pools, and reports what
// became of it.
//
//	p, err := stages.New("podcast",
//		stages.Stage{Name: "fetch", Work: fetch, MaxAttempts: 5},
//		stages.Stage{Name: "mix", Needs: []string{"fetch"}, Work: mix, Workers: 2},
//	)
//	st := store.New(pool, p.Graph())
//	l := notify.New(pool, notify.Options{Channels: p.Channels()})
//	r := stages.Runner{Store: st, Pipeline: p}
//	err = r.RunWith(ctx, l) // until ctx is done and the work has drained
//
// A process is one Runner, which is one dispatcher: the only thing that
// changes tasks. It takes in three kinds of plain values — outcomes of claims,
// free slots, news of stages — makes one round trip to the database with all
// of them, and gives out claims. Any number of processes may work on one
// pipeline.
//
// # What it promises
//
// At most Workers tasks of a stage are worked on at once in a process. A
// failed attempt is repeated after the stage's Backoff, as often as
// MaxAttempts allows; [Permanent] and [RetryAfter] say otherwise. A panic is a
// failed attempt. An attempt that is interrupted by a drain or by a database
// that is away does not count; one whose process dies does, so that a task
// which kills its workers comes to an end.
//
// A stage, a host or everything can be paused, and a process drained, by anybody
// who has the database (store.Store.Pause, Drain): no more is claimed, what is being
// worked on goes on, and Run returns nil after a drain.
//
// Work is told when its claim is no longer its own: its context is done, and
// [context.Cause] says why. Nothing it returns after that is kept.
//
// # What it tells
//
// [Runner].Observe hears what this process does, as it does it. What all processes
// do, and people by hand, is in the outbox, see store.Store.Events; a Runner deletes
// from there what is older than its KeepEvents, by default a week.
//
// # What it does not
//
// It does not log. It does not kill a function that
// ignores its context: a slot stays taken until Work returns.
package stages
