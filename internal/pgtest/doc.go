// Package pgtest gives every test its own PostgreSQL database.
//
//	func TestClaim(t *testing.T) {
//		t.Parallel()
//		pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers))
//		…
//	}
//
// [New] copies a template that each process creates once per schema, which is faster
// than creating the schema again. NOTIFY never leaves a database, so it is private to
// the test. The test's role owns its database but is not a superuser, as in
// production.
//
// The first use in a process starts an ephemeral server, which ends with the process
// and does not wait for the disk. A test of crashes uses a [Server] with Durable set,
// which the test starts, stops and kills.
//
// When $CUELIGHT_TEST_DATABASE_URL is set, [New] uses that server instead, with a role
// that may create roles and databases. The databases of failed tests then remain for
// inspection, and their addresses are in the test's log.
//
// On a machine without PostgreSQL tests are skipped, unless $CI is set: then they
// fail, because a successful run must have tested something.
//
// # Ephemeral servers
//
// Chaos and the benchmark use [StartEphemeral] directly. It starts a temporary server
// that can be stopped, killed, frozen, replicated and promoted:
//
//	s, err := pgtest.StartEphemeral(ctx, pgtest.EphemeralOptions{Durable: true})
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//	pool, err := pgxpool.New(ctx, s.URL("postgres"))
//
// It promises:
//
//   - No process and no file remains after [Ephemeral.Close], or after the death of
//     this program, whatever its cause. Two shells wait for the end of their
//     standard input: one then ends the server, the other removes the data.
//   - [Ephemeral.Stop] and [Ephemeral.Kill] return when every process of the server
//     is gone.
//   - The server works for root, too: it then runs as the user "postgres".
//   - The server listens on a Unix socket that only its user and root can reach. It
//     listens on a network only where [EphemeralOptions].Listen says so, and accepts
//     clients there without a password. Do not keep data of value in it.
package pgtest
