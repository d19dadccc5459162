// Package notify listens for PostgreSQL notifications. It keeps one bit per channel:
// there was a notification since the reader last asked. It wakes Cuelight's workers
// within a millisecond. Nothing but speed depends on it: every notification may be
// lost, forged, late or repeated.
//
//	l := notify.New(pool, notify.Options{Channels: channels})
//	go l.Run(ctx) // and wait for it when ctx is done
//
//	for range l.C() {
//		for _, channel := range l.Take() { … }
//	}
//
// # Connections
//
// A Listener keeps its own connection, apart from the pool. If that is lost, it
// reconnects with growing delays, and then wakes every channel, because it may have
// missed notifications. A connection can look alive and receive nothing: a firewall
// dropped it, or a pooler gave its LISTEN to another client. So the Listener regularly
// sends a notification to itself through the pool, and reconnects if that does not
// arrive in time. If the pool is busy or has no server, it cannot send one; the
// connection is then kept.
//
// The session shows other processes that this one is alive: it holds an advisory lock
// (see [Listener.Session]), and makes the server end the session some seconds after
// Options.KeepSession if this host vanishes.
//
// # Poolers
//
// A Listener detects a pooler such as PgBouncer between itself and PostgreSQL. In session
// mode everything works except the advisory lock. In transaction mode notifications do
// not arrive: [Options.OnChange] gets [ErrPooled] once, and the Listener tries again once
// a minute. [Options.ConnConfig] can give it an address that bypasses the pooler.
//
// # Limits
//
// It ignores the payloads of notifications: any role of the database may send any
// payload.
package notify
