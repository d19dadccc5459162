// Package postgres runs a private PostgreSQL server from the programs that are
// installed on the machine, so that Cuelight needs no database set up by hand.
//
//	srv, err := postgres.Start(ctx, postgres.Options{Dir: filepath.Join(dataDir, "db")})
//	if err != nil {
//		return err
//	}
//	defer srv.Close()
//	pool, err := pgxpool.New(ctx, srv.URL())
//
// What it promises:
//
//   - Nothing that is in the directory already is deleted or overwritten. A
//     cluster is made once, under another name, and gets its own name only
//     when it is complete. One that another major version made is left alone
//     ([VersionError]); so is anything that is no cluster ([ErrNotCluster]).
//   - The server is reached through a Unix socket in a directory that only its
//     user (and root) can enter, never through a network.
//   - There is one server for a directory, however many processes use it. The
//     first starts it; later ones adopt it. The last one to Close stops it,
//     whoever started it, and nobody before: see below.
//   - After a kill -9 of any of them, or a power cut, the next Start adopts
//     what still runs or recovers what does not.
//   - As root the server runs as the owner of the cluster, for a new one as
//     the user "postgres". If that user could not reach the directory, because
//     it lies below /root for instance, a new cluster is made below
//     /var/lib/cuelight-pg and the file moved-to in the directory says where.
//
// Who stops the server: every user holds a shared lock on the file "users", and
// starting and stopping take turns with the file "lock". Who closes tries to
// make the shared lock exclusive; where that works nobody else is left. The
// kernel drops the locks of a killed process, so they are never stale. The
// server is a child of the process that started it but is not tied to its life:
// it would otherwise be pulled away under the others. The price is that after a
// kill -9 of all users it runs on, idle, until the next one has come and gone.
// A supervisor that ends the whole process tree or control group, as systemd
// does, takes the server along; the others learn it from [Server.Done] and
// start it again.
//
// The package does not update PostgreSQL, make backups, or replace a server
// that somebody administers: for that, point Cuelight to its address.
package postgres
