// Package postgres runs PostgreSQL from the programs installed on the machine.
// [Start] runs the server of a data directory, so that Cuelight needs no database
// that was set up by hand:
//
//	srv, err := postgres.Start(ctx, postgres.Options{Dir: filepath.Join(dataDir, "db")})
//	if err != nil {
//		return err
//	}
//	defer srv.Close()
//	pool, err := pgxpool.New(ctx, srv.URL())
//
// The package promises:
//
//   - Start never deletes or overwrites anything in the directory. It creates a
//     cluster once, under a temporary name, and renames the cluster when it is
//     complete. It leaves a cluster of another major version ([VersionError]), and
//     anything that is not a cluster ([ErrNotCluster]), unchanged.
//   - Clients reach the server through a Unix socket in a directory that only the
//     server's user and root can enter, never through a network.
//   - A directory has one server, however many processes use it. The first process
//     starts the server; later ones adopt it. The last one to Close stops it.
//   - After a kill -9 of any of them, or a power failure, the next Start adopts the
//     server if it still runs, and otherwise starts it, which recovers the data.
//   - When the process is root, the server runs as the owner of the cluster; a new
//     cluster belongs to the user "postgres". If that user cannot reach the
//     directory, because it is below /root for example, Start creates the cluster
//     below /var/lib/cuelight-pg and records its location in the file moved-to.
//
// Each process that uses the server holds a shared lock on the file "users". The
// file "lock" serialises starting and stopping. Close tries to make the shared lock
// exclusive; if that works, no other process uses the server. The kernel releases
// the locks of a killed process, so locks are never stale.
//
// The server is a child of the process that started it, but outlives it: other
// processes may be using it. So after a kill -9 of all users the server runs on,
// idle, until the next user has closed it. A service manager that ends the whole
// control group, as systemd does, ends the server, too; other users learn of that
// from [Server.Done] and start the server again.
//
// The package does not update PostgreSQL, make backups, or replace a server that an
// administrator runs; for that, give Cuelight the address of such a server.
package postgres
