// Command cuelight takes videos through the stages of the built-in pipeline,
// on PostgreSQL alone: `cuelight run FILE` once, `cuelight serve` for ever.
//
// Data goes to standard output, everything for people to standard error. What
// the exit codes mean is in the help; see exitCodes.
package main

import (
	"context"
	"io"
	"os"

	"github.com/cuelight/cuelight/internal/dbconn"
)

// version is set by the linker; see `make build`.
var version = ""

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}

// run is the whole program, but for the exit: when it returns, nothing that it
// started is left.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env []string) int {
	sig := watchSignals(ctx)
	defer sig.stop()
	c := &cli{
		sig: sig,
		in:  stdin,
		out: newStream(stdout, dbconn.Environment(env)),
		err: newStream(stderr, dbconn.Environment(env)),
	}
	c.Env, c.Notices = env, c.err
	return c.finish(c.execute(args))
}
