// Package standby sends reads to a standby of the database while that is up to date.
//
//	r := standby.New(standby.Options{Primary: primary, Position: reserved, Standby: pool, MaxLag: 10 * time.Second})
//	go r.Run(ctx)                     // and wait for it
//	reads := store.New(r, graph)      // for reads only
//	handler = r.Handler(handler)      // so that clients read their own writes
//
// A [Router] sends a statement to the standby if that answers, is at most MaxLag behind, and has replayed everything
// up to the last call of [Router.Require]. Otherwise it sends the statement to the primary. So a client
// never sees the state before its own request, and never before an event that was required; apart from these, it
// may see a state that is MaxLag old.
//
// The package neither opens nor closes pools, and does not log.
package standby
