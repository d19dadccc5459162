// Package stages runs the work of a pipeline: it defines the stages, claims tasks for them,
// runs Go functions in bounded pools, and reports the outcomes.
//
//	p, err := stages.New("podcast",
//		stages.Stage{Name: "fetch", Work: fetch, MaxAttempts: 5},
//		stages.Stage{Name: "mix", Needs: []string{"fetch"}, Work: mix, Slots: 2},
//	)
//	r := stages.Runner{Pool: pool, Pipeline: p}
//	err = r.Run(ctx) // until ctx is done and the work has drained
//
// Package store creates the tables and submits tasks. A process has one Runner per pipeline;
// any number of processes may work on it.
//
// # Guarantees
//
// At most Slots attempts of a stage run at once in a process. A failed attempt is repeated
// after the stage's Backoff, up to MaxAttempts; [Permanent] and [RetryAfter] change that. A
// panic is a failed attempt. An attempt that a drain or an outage of the database interrupts
// does not count; one whose process dies does, so that a task that kills its workers ends.
//
// A stage with Divide is divided into parts, which any number of processes work on at once; see
// [Stage]. A process that dies costs the parts that it had in hand.
//
// Operators can pause a stage, a host or everything, and drain a process, through package
// store. Running attempts go on, and Run returns nil after a drain.
//
// When an attempt loses its claim, its context is done, and [context.Cause] says why. Its
// outcome is not recorded.
//
// # Events
//
// [Runner].Observe receives what this process does. The events of all processes, and of
// changes by hand, are in the database: see store.Store.Events. A Runner deletes those older
// than KeepEvents, by default a week.
//
// # Implementation
//
// A Runner has one dispatcher, the only part that changes tasks: it sends outcomes and free
// slots to the database in one round trip and receives claims. A heartbeat renews the lease
// of all claims. See dispatcher.go.
//
// # Limits
//
// It does not log. It does not kill a function that ignores its context: the slot stays in
// use until Work returns.
package stages
