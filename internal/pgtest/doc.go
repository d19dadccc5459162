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
// The first use in a process starts an ephemeral server ([postgres.StartEphemeral]),
// which ends with the process and does not wait for the disk. A test of crashes uses a
// [Server] with Durable set, which the test starts, stops and kills.
//
// When $CUELIGHT_TEST_DATABASE_URL is set, [New] uses that server instead, with a role
// that may create roles and databases. The databases of failed tests then remain for
// inspection, and their addresses are in the test's log.
//
// On a machine without PostgreSQL tests are skipped, unless $CI is set: then they
// fail, because a successful run must have tested something.
package pgtest
