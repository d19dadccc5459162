// Package pgserver runs throw-away PostgreSQL servers, to be stopped, killed,
// frozen, replicated and promoted: for tests, for programs that break things on
// purpose, and for measurements.
//
//	s, err := pgserver.Start(ctx, pgserver.Options{Durable: true})
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//	pool, err := pgxpool.New(ctx, s.URL("postgres"))
//
// What it promises:
//
//   - Neither a process nor a file is left after [Server.Close], nor after the
//     death of this program, however that comes about: each server has a keeper,
//     a shell that waits for the end of its standard input, then ends the server
//     and removes the data.
//   - [Server.Stop] and [Server.Kill] return when every process of the server
//     is gone, so that what comes next meets nothing of it.
//   - It works as root, too: the server then runs as the user "postgres".
//   - A server is always on a Unix socket that only its user and root can
//     reach. It is on a network only where [Options].Listen says so, and lets
//     everybody there in without a password: not for data that matter.
//
// Unless Durable is set a server does not wait for the disk, and its data lie
// in memory (/dev/shm) if there is plenty and $TMPDIR does not say otherwise.
//
// The package does not look after data that are to last. For those there is
// internal/postgres.
package pgserver
