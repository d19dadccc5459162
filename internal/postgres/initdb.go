package postgres

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"syscall"
)

// Superuser is the role that owns a cluster made here.
const Superuser = "cuelight"

// locale is what servers run in and clusters are made with. macOS has no
// C.UTF-8, and with a locale from the environment its server may stop with
// "postmaster became multithreaded during startup".
func locale() string {
	if runtime.GOOS == "darwin" {
		return "C"
	}
	return "C.UTF-8"
}

// InitDB makes a cluster in dir, an empty directory that belongs to the
// account: UTF-8, checksums on, [Superuser] without a password over the Unix
// socket, and nobody over the network. Further arguments go to initdb as they
// are. Cancelling ctx kills initdb and leaves what it had made.
func (b Binaries) InitDB(ctx context.Context, as Account, dir string, args ...string) error {
	out, err := b.initdb(ctx, as, dir, locale(), args)
	if err != nil && bytes.Contains(out, []byte("invalid locale name")) {
		// C libraries from before 2021 know no C.UTF-8. The check comes before
		// anything is written, so dir is still empty.
		out, err = b.initdb(ctx, as, dir, "C", args)
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("create database: %w", context.Cause(ctx))
	}
	e := explain(string(out))
	e.Problem = "create database: " + e.Problem
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
	cmd := as.Command(ctx, b.Path("initdb"), args...)
	// With its children, which would go on writing; Run waits for them too,
	// because they hold the output open.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.Bytes(), err
}

// lastLines returns the end of s, at most n lines.
func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
