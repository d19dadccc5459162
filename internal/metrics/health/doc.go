// Package health answers whether a process is alive and whether it is ready, over
// HTTP and in JSON.
//
//	alive := health.New(health.Options{Checks: []health.Check{health.Loops(pulse.stuck)}})
//	ready := health.New(health.Options{Checks: []health.Check{
//		{Name: "schema", Run: st.Check},
//		health.Listening(listener.Connected),
//		health.Disk("disk", dir, floor),
//	}})
//	mux.Handle("GET /healthz", alive)
//	mux.Handle("GET /readyz", ready)
//
// What is checked is up to the caller: a [Check] is a name and a function. All
// checks of a Health run at once, each for as long as it may, and what they found
// is good for a second, however many ask. One that does not heed its context is
// not waited for, and not begun again before it has come back.
//
// It does not decide what follows. To be alive should not depend on a database:
// who is restarted because that is away only makes it worse.
package health
