// Package access authenticates HTTP requests and authorises them by scope.
//
//	admin, _, err := access.LoadSecret(filepath.Join(dir, "admin-secret"))
//	guard, err := access.New(access.Options{Admin: admin, Keys: access.NewKeyStore(pool)})
//	handler := guard.Identify(mux)
//
//	// in a handler
//	if err := access.Check(r.Context(), access.Submit); err != nil { … }
//	principal := access.PrincipalOf(r.Context())
//
// A request carries one of these credentials:
//
//   - the admin secret or the read-only secret, as a bearer token;
//   - an API key, as a bearer token (see [KeyStore.CreateKey]), with the key's scope;
//   - a session cookie, which [Guard.Login] creates for either.
//
// # Guarantees
//
// The package keeps digests of secrets only, and compares them in constant time. It
// compares all of them whichever matches, and compares a random digest if no key has the
// given prefix. After too many failures from one address, or in total, it rejects further
// ones without a check for a while. That never locks out a client with a valid secret,
// session or key; a new key may need ten seconds. No error contains a secret, a key or a
// cookie.
//
// # Sessions
//
// A session is a cookie that contains the principal and the end of the session, with a
// MAC. The server stores no sessions, because a restart (every update) would then end
// all of them, and two daemons behind one address would not know each other's. The price
// is that the server cannot revoke a session by deleting it:
//
//   - A session ends with its credential: the cookie is bound to the secret or key that
//     created it, and every request looks the key up.
//   - Logout is remembered until the end of the session, but in this process only. After a
//     restart, a copy of the cookie is valid again until then. To end all sessions, delete
//     the file of the session key.
//
// A session ends 12 to 24 hours after its last use, because it is extended only in the
// second half of its time, and at the latest 30 days after the login.
package access
