// Package health reports whether a process is alive and whether it is ready, over HTTP
// in JSON.
//
//	alive := health.New(health.Options{Checks: []health.Check{health.Loops(watchdog.stuck)}})
//	ready := health.New(health.Options{Checks: []health.Check{
//		{Name: "schema", Run: st.Check},
//		health.Listening(listener.Connected),
//		health.Disk("disk", dir, minFree),
//	}})
//	mux.Handle("GET /healthz", alive)
//	mux.Handle("GET /readyz", ready)
//
// The caller supplies the checks: a [Check] is a name and a function. All checks of a
// Health run concurrently, each with a timeout, and the results are cached for a second.
// A check that ignores its context is not waited for, and does not run again before it
// has returned.
//
// The package does not act on a failure. Liveness should not depend on the database:
// a restart does not help when the database is down.
package health
