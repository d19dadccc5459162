package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// daemon is a running `cuelight serve`.
type daemon struct {
	*childproc.Process
	server // of the API and the dashboard

	mu       sync.Mutex
	problems []string // warnings and errors that it logged
}

// startDaemon starts a daemon with its directories below dir.
func startDaemon(ctx context.Context, program, dir, databaseURL string) (d *daemon, err error) {
	cmd := exec.Command(program, "serve", "--listen", "127.0.0.1:0", "--reserve", "0", "--grace", "1s")
	dataDir := filepath.Join(dir, "data")
	cmd.Env = proofkit.DaemonEnviron("CUELIGHT_DATABASE_URL="+databaseURL, "CUELIGHT_DATA_DIR="+dataDir)
	d = &daemon{}
	listening := make(chan struct{})
	cmd.Stderr = childproc.Lines(func(line []byte) { d.readLogLine(string(line), listening) })
	if d.Process, err = childproc.Start(cmd, childproc.Options{Session: true}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the daemon does not listen after a minute"))
	defer cancel()
	if err := proofkit.WaitReady(ctx, d.Process, listening); err != nil {
		return nil, fmt.Errorf("start the daemon: %w: %s", err, strings.Join(d.errors(), "; "))
	}
	secret, err := os.ReadFile(filepath.Join(dataDir, "secrets", "admin"))
	if err != nil {
		return nil, errors.Join(err, d.Stop(ctx, syscall.SIGTERM))
	}
	d.secret = strings.TrimSpace(string(secret))
	return d, nil
}

// readLogLine takes the address and the problems from the log. It closes listening when it has the address.
func (d *daemon) readLogLine(line string, listening chan<- struct{}) {
	var entry struct{ Level, Address string }
	if err := json.Unmarshal([]byte(line), &entry); err != nil {
		entry.Level = "error"
	}
	switch {
	case d.address == "" && strings.HasPrefix(entry.Address, "http://"):
		address, _ := url.Parse(entry.Address) // an invalid one shows in the first request
		d.address = address.Host
		close(listening)
	case entry.Level != "info" && !strings.Contains(line, missingFile):
		d.mu.Lock()
		defer d.mu.Unlock()
		d.problems = append(d.problems, line)
	}
}

// errors returns the warnings and errors that the daemon logged.
func (d *daemon) errors() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.problems)
}
