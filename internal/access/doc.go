// Package access decides who may do what over HTTP.
//
//	admin, _, err := access.LoadSecret(filepath.Join(dir, "admin-secret"))
//	guard, err := access.New(access.Options{Admin: admin, Keys: st})
//	handler := guard.Identify(mux)
//
//	// in a handler
//	if err := access.Check(r.Context(), access.Submit); err != nil { … }
//	who := access.From(r.Context())
//
// Whoever asks shows one of these:
//
//   - the admin secret or the read-only secret, as a bearer token;
//   - an API key, as a bearer token, see store.CreateKey; its scope is the key's;
//   - the cookie of a session, which [Guard.Login] gives for either.
//
// # What it promises
//
// Of secrets it keeps digests, and compares these in constant time, all of them
// whichever matches; where no key has the prefix that was shown, it compares with
// one that nobody has. What is wrong is refused unseen for a while where too much was
// wrong, by address and overall. That keeps nobody out who has a secret, a session, or
// a key: a new key within ten seconds of being made. A secret, a key or a cookie is in
// none of its errors.
//
// # Sessions
//
// A session is a cookie that says whose it is and until when, with a MAC. It is
// not a token whose meaning is kept in memory, because then a restart, which is
// every update, would end the session of everybody who looks at a page, and two
// daemons that one address leads to would not know each other's. What that costs
// is that a session cannot be taken back for good by forgetting it:
//
//   - Whose credential ends, his sessions do: the cookie is bound to the secret or
//     the key that it was given for, and a key is looked up each time.
//   - A session that was logged out is remembered until it would have ended, but in
//     this process only. After a restart, somebody who has a copy of its cookie
//     could use it until then. New session keys end all: delete their file.
//
// A session ends 12 to 24 hours after it was last used, because it is only made
// longer when half of its time is over, and 30 days after it began.
package access
