// Command cuelight takes videos through the stages of the video pipeline, with
// PostgreSQL as its only service: `cuelight run FILE` once, `cuelight serve` as a daemon.
//
// Each command has a file with its flags, its help and its output. The work is done by
// packages: internal/dbconn finds and opens the database, internal/daemon runs workers
// and services, internal/ops performs the actions of operators. Data goes to standard
// output, messages to standard error. Errors have kinds, and exit.go has the one table
// of exit codes.
package main

import (
	"context"
	"io"
	"os"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/dbconn"
)

// version is set by the linker; see `make build`.
var version = ""

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}

// run is the whole program except for the exit. When it returns, nothing that it started
// still runs.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env dbconn.Environment) int {
	sig := daemon.WatchSignals(ctx)
	defer sig.Stop()
	c := &cli{sig: sig, in: stdin, out: console.NewStream(stdout, env), err: console.NewStream(stderr, env)}
	c.Env, c.Notices = env, c.err
	return c.finish(c.execute(args))
}
