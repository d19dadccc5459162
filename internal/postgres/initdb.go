package postgres

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"

	"github.com/cuelight/cuelight/internal/childproc"
)

// Superuser is the role that owns the clusters of this package.
const Superuser = "cuelight"

// locale is the locale of servers and new clusters. macOS has no C.UTF-8, and with a
// locale of the environment its server may stop with "postmaster became
// multithreaded during startup".
func locale() string {
	if runtime.GOOS == "darwin" {
		return "C"
	}
	return "C.UTF-8"
}

// InitDB creates a cluster in dir, an empty directory of the account: with UTF-8
// and checksums, with access for [Superuser] over the Unix socket without a
// password, and with no access over the network. Further arguments are passed to
// initdb. Cancelling ctx kills initdb and leaves its files.
func (b Binaries) InitDB(ctx context.Context, as Account, dir string, args ...string) error {
	out, err := b.initdb(ctx, as, dir, locale(), args)
	if err != nil && bytes.Contains(out, []byte("invalid locale name")) {
		// C libraries from before 2021 have no C.UTF-8. initdb checks that before it
		// writes anything, so dir is still empty.
		out, err = b.initdb(ctx, as, dir, "C", args)
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("create database: %w", context.Cause(ctx))
	}
	e := explain(string(out))
	e.Text = "create database: " + e.Text
	if e.Err == nil {
		e.Err = err
	}
	return e
}

func (b Binaries) initdb(ctx context.Context, as Account, dir, locale string, args []string) ([]byte, error) {
	args = append([]string{
		"-D", dir, "-U", Superuser, "-E", "UTF8", "--locale=" + locale,
		"--auth-local=trust", "--auth-host=reject", "--data-checksums",
	}, args...)
	cmd := as.Command(b.Path("initdb"), args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := childproc.Run(ctx, cmd, childproc.Options{Session: true})
	return out.Bytes(), err
}

// lastLines returns the last n lines of s, or all.
func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
