package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// launch brings the server of a cluster up.
type launch struct {
	*cluster
	settings map[string]string
	alone    bool // nobody else uses the cluster, so nothing of it should run
}

// run adopts the server if there is one, and starts it if not. What is left of
// one that was killed may be in the way for a while.
func (l *launch) run(ctx context.Context) (*instance, error) {
	giveUp := time.Now().Add(obstacleWithin)
	for {
		in, err := l.adopt(ctx)
		if in != nil || err != nil {
			return in, err
		}
		in, err = l.start(ctx)
		if err == nil || !errors.Is(err, ErrInUse) || time.Now().After(giveUp) {
			return in, err
		}
		removed, staleErr := l.removeStale()
		if staleErr != nil {
			return nil, errors.Join(err, staleErr)
		}
		if !removed {
			pause(ctx, lockPause)
		}
	}
}

// removeStale removes the lock files of a server that is certainly gone, in the
// one case where the next server does not do so itself: when the number in them
// now belongs to another process of the same user, as is common after a power
// cut, the server takes that process for a living server.
func (l *launch) removeStale() (removed bool, err error) {
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
	// Had a server come in between, the files would be new.
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

// readAll reads small files; one that cannot be read is as good as empty.
func readAll(paths []string) []string {
	texts := make([]string, len(paths))
	for i, path := range paths {
		text, _ := os.ReadFile(path)
		texts[i] = string(text)
	}
	return texts
}

// adopt returns nil if there is no server to adopt. It waits for one that is
// about to come up or go down.
func (l *launch) adopt(ctx context.Context) (*instance, error) {
	for {
		file, err := readPidFile(l.data)
		if err != nil {
			return nil, fmt.Errorf("look for a running server: %w", err)
		}
		if file.pid <= 0 || file.socketDir == "" {
			return nil, nil // starting one will tell what is wrong, if anything
		}
		p := adopted(file.pid)
		if p == nil {
			return nil, nil
		}
		err = ask(ctx, file.socketDir, file.port, l.data)
		if err == nil {
			return &instance{process: p, socketDir: file.socketDir, port: file.port}, nil
		}
		p.release()
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("wait for the running server: %w", context.Cause(ctx))
		case refused(err):
			return nil, &Error{
				Problem: fmt.Sprintf("the server that runs in %s (process %d) does not let us in", l.data, file.pid),
				Advice:  "it was not started by Cuelight; stop it",
				Detail:  err.Error(),
				Err:     ErrInUse,
			}
		case !notYet(err):
			return nil, nil // the number may have become another process's
		}
		pause(ctx, lockPause)
	}
}

// start starts the server and waits until it answers.
func (l *launch) start(ctx context.Context) (*instance, error) {
	if err := l.checkReach(); err != nil {
		return nil, err
	}
	in := &instance{port: port}
	var err error
	if in.socketDir, err = socketDir(l.home, l.account); err != nil {
		return nil, err
	}
	log, from, err := l.openLog()
	if err != nil {
		return nil, err
	}
	in.logFrom = from
	// Not ctx: the server outlives the start.
	cmd := l.account.Command(context.Background(), l.bin.Path("postgres"), l.arguments(in.socketDir)...)
	cmd.Stdout, cmd.Stderr = log, log
	err = errors.Join(cmd.Start(), log.Close())
	if err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	in.process = launched(cmd)
	if err := l.ready(ctx, in); err != nil {
		in.process.stop()
		return nil, err
	}
	return in, nil
}

// arguments are the settings that must hold, whatever the configuration says.
func (l *launch) arguments(socketDir string) []string {
	must := map[string]string{
		"listen_addresses":        "",
		"port":                    port,
		"unix_socket_directories": quoteList(socketDir),
		"unix_socket_permissions": "0700",
		"logging_collector":       "off",
		"log_destination":         "stderr",
		"cluster_name":            "cuelight",
		"lc_messages":             "C", // explain reads English
	}
	args := []string{"-D", l.data}
	for _, settings := range []map[string]string{l.settings, must} {
		for _, name := range slices.Sorted(maps.Keys(settings)) {
			args = append(args, "-c", name+"="+settings[name])
		}
	}
	return args
}

// ready waits until the server answers, has ended, or has been silent too long.
func (l *launch) ready(ctx context.Context, in *instance) error {
	silent := time.Now().Add(silentWithin)
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := ask(ctx, in.socketDir, in.port, l.data)
		if err == nil {
			return nil
		}
		if notYet(err) {
			silent = time.Now().Add(silentWithin)
		}
		select {
		case <-in.process.ended:
			e := explain(l.logSince(in.logFrom))
			e.Problem = "start server: " + e.Problem + " (" + in.process.how + ")"
			return e
		case <-ctx.Done():
			return fmt.Errorf("wait for the server: %w", context.Cause(ctx))
		case <-time.After(wait):
		}
		if refused(err) || time.Now().After(silent) {
			return &Error{
				Problem: "start server: it runs but does not answer: " + err.Error(),
				Advice:  "its log is in " + l.home,
				Detail:  lastLines(l.logSince(in.logFrom), detailLines),
				Err:     err,
			}
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
