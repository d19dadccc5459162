// Package web is the HTTP API of a pipeline, and what it takes to serve it: who
// may come in, streams of events, what is published, and the dashboard in front.
//
//	guard, err := access.New(access.Options{Admin: secret, Keys: st})
//	server, err := web.New(web.Options{Store: st, Guard: guard, Subscribe: subscribe, Published: dir})
//	err = server.Serve(ctx, listener)   // until ctx is done; then it drains
//
// It is the program's own: what its options take is made by packages that only
// the program has.
//
// The API is under /api/v1 and described by /openapi.json, which tests hold
// against what the handlers do. Errors are problem details after RFC 9457, whose
// types are URNs that do not change.
//
// # What it promises
//
//   - Everything needs a principal with the route's scope, save /healthz, /readyz,
//     and the login page with what it is made of.
//   - What changes something is no GET, is refused when a page of another site
//     asks for it, and is written to the audit, in the same transaction wherever
//     the database is what it changes. An upload is in it once a task is made of it.
//   - JSON is read strictly: an unknown or repeated member, a second value, too
//     much of it, or too deep, is refused. So is an unknown query parameter: a
//     misspelt filter is not one that chooses all.
//   - Whoever reads a stream on misses no event and gets none twice: it begins with
//     its place, every event has one, and Last-Event-ID or ?after= goes on from
//     there. Where that cannot be, because events are deleted or the place is none of
//     this database, the event resync says so. A slow client holds up nobody else.
//   - The stream of a task closes when the task has come to an end, and no sooner:
//     the state has the last word. Asked to go on after that it answers 204, at which
//     a browser stops asking.
//   - No query string, header, secret or source's password is in what
//     Options.Observe hears. Sources have their public form, see internal/redact,
//     to everybody but the scope admin.
//   - What stays open, a stream or a page that follows, ends about a minute after the
//     key or session that opened it.
//   - What is published is served out of its directory and nothing else is,
//     whatever a path or a symbolic link says.
//
// # What it does not do
//
// It limits failures to authenticate, the number of streams and connections, and the
// size and duration of requests, but not how often somebody with a key asks. It sends no
// CORS headers: pages of other sites cannot use it. It does not log.
package web
