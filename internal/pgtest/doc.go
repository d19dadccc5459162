// Package pgtest gives every test a PostgreSQL database of its own.
//
//	func TestClaim(t *testing.T) {
//		t.Parallel()
//		pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers))
//		…
//	}
//
// [New] copies a template that is made once per process and schema, which is
// faster than making the schema again, and NOTIFY, which never leaves a
// database, is private to the test. The test's role may do anything in its
// database but is no superuser, just as in production.
//
// The first use in a process starts a throw-away server from the installed
// PostgreSQL, also as root, with its data in a temporary directory: in memory
// (/dev/shm) if there is plenty and $TMPDIR does not say otherwise. It does not
// outlive the process, however that ends, and its data goes with it. It does
// not wait for the disk: what a test needs to know about crashes is asked of a
// [Server] with Durable set, which a test starts, stops and kills as it likes.
//
// When $CUELIGHT_TEST_DATABASE_URL is set, [New] uses that server instead, as a
// role which may create roles and databases; databases of failed tests are then
// kept for inspection, and their addresses are in the test's log.
//
// Without PostgreSQL on the machine tests are skipped, unless $CI is set: then
// they fail, because a green run that tested nothing is a lie.
package pgtest
