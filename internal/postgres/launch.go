package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/flock"
)

// launch gets the server of a cluster running.
type launch struct {
	*cluster
	alone bool // no other process uses the cluster, so no server should run
}

// run adopts the server if it runs, and starts it otherwise. The remains of a killed
// server may prevent that for a while.
func (l *launch) run(ctx context.Context) (*instance, error) {
	deadline := time.Now().Add(obstacleTimeout)
	for {
		in, err := l.adopt(ctx)
		if in != nil || err != nil {
			return in, err
		}
		in, err = l.start(ctx)
		if err == nil || !errors.Is(err, ErrInUse) || time.Now().After(deadline) {
			return in, err
		}
		removed, staleErr := l.removeStaleLocks()
		if staleErr != nil {
			return nil, errors.Join(err, staleErr)
		}
		if !removed {
			_ = ctxsleep.For(ctx, flock.RetryInterval) // adopt checks ctx
		}
	}
}

// removeStaleLocks removes the lock files of a dead server in the one case where the
// next server does not: the process id in them belongs to another process of the
// same user, as is common after a power failure, and the server takes that process
// for a running server.
func (l *launch) removeStaleLocks() (removed bool, err error) {
	if !l.alone {
		return false, nil
	}
	paths := []string{filepath.Join(l.data, "postmaster.pid")}
	if dir, err := socketDir(l.home, l.account); err == nil {
		paths = append(paths, socketPath(dir)+".lock")
	}
	before := readAll(paths)
	if running, known := anyProcessIn(l.data); running || !known {
		return false, nil
	}
	// A server that started meanwhile has written new files.
	for i, now := range readAll(paths) {
		if now == "" || now != before[i] {
			continue
		}
		if err := os.Remove(paths[i]); err != nil {
			return removed, fmt.Errorf("remove lock file of a dead server: %w", err)
		}
		removed = true
	}
	return removed, nil
}

// readAll reads small files. The text of an unreadable one is empty.
func readAll(paths []string) []string {
	texts := make([]string, len(paths))
	for i, path := range paths {
		text, _ := os.ReadFile(path)
		texts[i] = string(text)
	}
	return texts
}

// adopt returns nil if no server runs. It waits for a server that is starting or
// shutting down.
func (l *launch) adopt(ctx context.Context) (*instance, error) {
	for {
		file, err := readPidFile(l.data)
		if err != nil {
			return nil, fmt.Errorf("find a running server: %w", err)
		}
		if file.pid <= 0 || file.socketDir == "" {
			return nil, nil // the start will report any error
		}
		p := adoptProcess(file.pid)
		if p == nil {
			return nil, nil
		}
		err = checkServer(ctx, file.socketDir, file.port, l.data)
		if err == nil {
			return &instance{process: p, socketDir: file.socketDir, port: file.port}, nil
		}
		p.release()
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("wait for the running server: %w", context.Cause(ctx))
		case isRejected(err):
			return nil, &Error{
				Text:   fmt.Sprintf("the server in %s (process %d) rejects the connection", l.data, file.pid),
				Hint:   "Cuelight did not start it; stop it",
				Detail: err.Error(),
				Err:    ErrInUse,
			}
		case !isStarting(err):
			return nil, nil // the process id may belong to another process
		}
		_ = ctxsleep.For(ctx, flock.RetryInterval) // checkServer checks ctx
	}
}

// start starts the server and waits until it answers.
func (l *launch) start(ctx context.Context) (*instance, error) {
	if err := l.checkAccess(); err != nil {
		return nil, err
	}
	in := &instance{port: port}
	var err error
	if in.socketDir, err = socketDir(l.home, l.account); err != nil {
		return nil, err
	}
	log, offset, err := l.openLog()
	if err != nil {
		return nil, err
	}
	in.logOffset = offset
	cmd := l.account.Command(l.bin.Path("postgres"), l.arguments(in.socketDir)...)
	cmd.Stdout, cmd.Stderr = log, log
	in.process, err = startProcess(cmd)
	if err := errors.Join(err, log.Close()); err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	if err := l.waitReady(ctx, in); err != nil {
		in.process.stop()
		return nil, err
	}
	return in, nil
}

// arguments contain the settings that override every configuration.
func (l *launch) arguments(socketDir string) []string {
	return []string{
		"-D", l.data, "-c", "listen_addresses=", "-c", "port=" + port,
		"-c", "unix_socket_directories=" + quoteListItem(socketDir), "-c", "unix_socket_permissions=0700",
		"-c", "logging_collector=off", "-c", "log_destination=stderr", "-c", "cluster_name=cuelight",
		"-c", "lc_messages=C", // explain reads English
	}
}

// waitReady waits until the server answers, has ended, or has not reacted for too
// long.
func (l *launch) waitReady(ctx context.Context, in *instance) error {
	deadline := time.Now().Add(silenceTimeout)
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := checkServer(ctx, in.socketDir, in.port, l.data)
		if err == nil {
			return nil
		}
		if isStarting(err) {
			deadline = time.Now().Add(silenceTimeout)
		}
		select {
		case <-in.process.ended:
			e := explain(l.logSince(in.logOffset))
			e.Text = "start server: " + e.Text + " (" + in.process.exitReason() + ")"
			return e
		case <-ctx.Done():
			return fmt.Errorf("wait for the server: %w", context.Cause(ctx))
		case <-time.After(wait):
		}
		if isRejected(err) || time.Now().After(deadline) {
			return &Error{
				Text:   "start server: it is running but does not answer: " + err.Error(),
				Hint:   "its log is in " + l.home,
				Detail: lastLines(l.logSince(in.logOffset), detailLines),
				Err:    err,
			}
		}
	}
}
