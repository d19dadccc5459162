// Package web serves a pipeline over HTTP: the JSON API, streams of events, published files, uploads, and the
// dashboard, all behind authentication.
//
//	guard, err := access.New(access.Options{Admin: secret, Keys: access.NewKeyStore(pool)})
//	server, err := web.New(web.Options{Store: st, Guard: guard, Subscribe: subscribe, Published: dir})
//	err = server.Serve(ctx, listener)   // until ctx is done
//
// The package is for the program cuelight: its options take values of internal packages.
//
// The API is under /api/v1 and described by /openapi.json; tests compare the description with the responses. Errors
// are problem details (RFC 9457), whose types are URNs that do not change.
//
// # Guarantees
//
//   - Every route requires a principal with its scope, except /healthz, /readyz, and the login page with its assets.
//   - A request that changes something is never a GET, is refused if it comes from a page of another site, and is
//     recorded in the audit log, in the same transaction if it changes the database. An upload is recorded once it
//     has a task.
//   - JSON is read strictly: unknown and repeated members, data after the value, and bodies that are too large or
//     nested too deeply are refused. So are unknown query parameters, because a misspelt filter would match all
//     tasks.
//   - A client that resumes a stream misses no event and gets none twice: every event has an id, the stream starts
//     with its position, and Last-Event-ID or ?after= continues from there. If that is impossible, because events
//     are pruned or the database does not know the id, the client gets the event resync. A slow client delays no
//     other.
//   - The stream of a task closes when the task has ended, and not before: the state of the task decides. A client
//     that then reconnects gets 204, and a browser stops.
//   - Options.Observe receives no query string, header, secret or password of a source. Only principals with the
//     scope admin see whole sources; others see their public form, see internal/redact.
//   - A stream or an open page ends about a minute after its key or session becomes invalid.
//   - Only files inside the published directory are served, whatever a path or a symbolic link says.
//
// # Limits
//
// The package limits failed logins, open streams, connections, concurrent requests, and the size and duration of
// requests, but not the rate of requests. It sends no CORS headers, so pages of other sites cannot use the API. It
// does not log.
package web
