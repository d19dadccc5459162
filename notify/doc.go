// Package notify listens for PostgreSQL's notifications and keeps what it
// heard as one bit per channel: "there was news since you last asked". It is
// what wakes Cuelight's workers within a millisecond, and nothing depends on
// it but time: every notification may be lost, forged, late or doubled.
//
//	l := notify.New(pool, notify.Options{Channels: channels})
//	go l.Run(ctx) // and wait for it when ctx is done
//
//	for range l.C() {
//		for _, channel := range l.Take() { … }
//	}
//
// A Listener keeps a connection of its own, beside the pool. It comes back by
// itself when that is lost, with growing pauses, and then counts every channel
// as news, since nobody knows what was missed. A connection that only looks
// alive — a firewall forgot it, a proxy hands its LISTEN to somebody else —
// is found out by a notification which the Listener sends to itself through
// the pool and which has to come back in time. A pool that is busy or away
// cannot send it, and that says nothing of the connection, which stays.
//
// The session also shows others that this process is there: it holds an
// advisory lock, see [Listener.Session], and asks the server to notice, some
// seconds after Options.Keep, when this machine is gone without a word.
//
// A pooler between here and PostgreSQL, such as PgBouncer, is recognised. In
// session mode all but the advisory lock works through it. In transaction mode
// notifications do not arrive, which [Options.OnChange] is told once, as
// [ErrPooled]; the Listener then looks once a minute whether that has changed.
// Give it an address of its own in [Options.ConnConfig], past the pooler.
//
// The payloads of notifications are not looked at: any role of the database
// may send any.
package notify
