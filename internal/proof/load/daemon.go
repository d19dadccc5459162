package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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
	address      string // of the API and the dashboard
	debugAddress string // of the profiles
	secret       string

	mu       sync.Mutex
	problems []string // warnings and errors that it logged
}

// startTimeout is how long a daemon may take to listen, and drainTimeout to end.
const startTimeout, drainTimeout = time.Minute, time.Minute

// startDaemon starts a daemon with its directories below dir.
func startDaemon(ctx context.Context, program, dir, databaseURL string, args ...string) (*daemon, error) {
	program, err := filepath.Abs(program)
	if err != nil {
		return nil, err
	}
	args = append([]string{
		"serve", "--listen", "127.0.0.1:0", "--debug-listen", "127.0.0.1:0", "--reserve", "0", "--grace", "1s",
	}, args...)
	cmd := exec.Command(program, args...)
	dataDir := filepath.Join(dir, "data")
	cmd.Env = proofkit.DaemonEnviron("CUELIGHT_DATABASE_URL="+databaseURL, "CUELIGHT_DATA_DIR="+dataDir)
	d := &daemon{}
	listening := make(chan struct{})
	cmd.Stderr = childproc.Lines(func(line []byte) { d.readLogLine(string(line), listening) })
	if d.Process, err = childproc.Start(cmd, childproc.Options{Session: true}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the daemon does not listen after %v", startTimeout))
	defer cancel()
	if err := proofkit.WaitReady(ctx, d.Process, listening); err != nil {
		return nil, fmt.Errorf("start the daemon: %w: %s", err, strings.Join(d.errors(), "; "))
	}
	secret, err := os.ReadFile(filepath.Join(dataDir, "secrets", "admin"))
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	d.secret = strings.TrimSpace(string(secret))
	return d, nil
}

// readLogLine takes the addresses and the problems from the log. It closes listening when it has
// both addresses.
func (d *daemon) readLogLine(line string, listening chan<- struct{}) {
	var entry struct{ Level, Msg, Address string }
	if err := json.Unmarshal([]byte(line), &entry); err != nil {
		entry.Level = "error"
	}
	wasListening := d.address != "" && d.debugAddress != ""
	switch {
	case !wasListening && strings.HasPrefix(entry.Address, "http://"):
		address, _ := url.Parse(entry.Address) // an invalid one shows in the first request
		d.address = address.Host
	case entry.Msg == "serving profiles":
		d.debugAddress = entry.Address
	case entry.Level != "info" && !strings.Contains(line, missingFile):
		d.mu.Lock()
		d.problems = append(d.problems, line)
		d.mu.Unlock()
	}
	if !wasListening && d.address != "" && d.debugAddress != "" {
		close(listening)
	}
}

// close drains the daemon.
func (d *daemon) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if err := d.Stop(ctx, syscall.SIGTERM); errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the daemon did not end within %v", drainTimeout)
	}
	return nil // its log says why it ended
}

// errors returns the warnings and errors that the daemon logged.
func (d *daemon) errors() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.problems)
}

// profile returns one of the daemon's profiles.
func (d *daemon) profile(ctx context.Context, name string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.debugAddress+"/debug/pprof/"+name, nil)
	if err != nil {
		return nil, err
	}
	return readResponse(http.DefaultClient.Do(r))
}

// readResponse returns the body of a response, or an error if the status is not 200.
func readResponse(resp *http.Response, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Request.URL.Path, resp.Status)
	}
	return body, err
}

// heapFigures match the memory statistics at the end of a heap profile as text.
var heapFigures = regexp.MustCompile(`(?m)^# (HeapInuse|Stack|HeapAlloc|HeapReleased|HeapIdle|NumGC) = (\d+)`)

// heap returns the memory statistics of the daemon's runtime, in bytes.
func (d *daemon) heap(ctx context.Context) (map[string]int64, error) {
	text, err := d.profile(ctx, "heap?debug=1")
	if err != nil {
		return nil, err
	}
	figures := make(map[string]int64)
	for _, match := range heapFigures.FindAllStringSubmatch(string(text), -1) {
		figures[match[1]], _ = strconv.ParseInt(match[2], 10, 64) // it is digits
	}
	return figures, nil
}

// saveProfiles writes profiles of a phase into a directory.
func (d *daemon) saveProfiles(ctx context.Context, dir, prefix string, phase time.Duration) error {
	for name, file := range map[string]string{
		"heap": "heap", "goroutine": "goroutine",
		fmt.Sprintf("profile?seconds=%d", max(int(phase.Seconds())-1, 1)): "cpu",
	} {
		text, err := d.profile(ctx, name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, prefix+"."+file+".pprof"), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
