package main

import (
	"bufio"
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
)

// daemon is a running `cuelight serve`.
type daemon struct {
	cmd     *exec.Cmd
	address string // where it serves people and programs
	debug   string // and profiles
	secret  string
	ended   chan struct{}

	mu    sync.Mutex
	wrong []string // what it logged that was more than news
}

// startWithin is how long a daemon may take to serve, and endWithin to drain.
const startWithin, endWithin = time.Minute, time.Minute

// serve starts a daemon with its directories below dir.
func serve(ctx context.Context, program, dir, database string, args ...string) (*daemon, error) {
	program, err := filepath.Abs(program)
	if err != nil {
		return nil, err
	}
	d := &daemon{ended: make(chan struct{})}
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--debug-listen", "127.0.0.1:0", "--reserve", "0", "--grace", "1s"}, args...)
	d.cmd = exec.Command(program, args...)
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PG") && !strings.HasPrefix(kv, "CUELIGHT_") {
			d.cmd.Env = append(d.cmd.Env, kv)
		}
	}
	d.cmd.Env = append(d.cmd.Env, "CUELIGHT_DATABASE_URL="+database, "CUELIGHT_DATA_DIR="+filepath.Join(dir, "data"))
	d.cmd.SysProcAttr = apart()
	logs, err := d.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan struct{})
	go func() {
		defer close(d.ended)
		d.read(logs, ready)
		_ = d.cmd.Wait() // why it ended is in what it logged
	}()
	select {
	case <-ready:
	case <-d.ended:
		return nil, fmt.Errorf("the daemon ended: %s", strings.Join(d.logged(), "; "))
	case <-time.After(startWithin):
		return nil, errors.Join(errors.New("the daemon does not serve"), d.close())
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), d.close())
	}
	secret, err := os.ReadFile(filepath.Join(dir, "data", "secrets", "admin"))
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	d.secret = strings.TrimSpace(string(secret))
	return d, nil
}

// read takes from the log where it serves, and what is wrong.
func (d *daemon) read(logs io.Reader, ready chan<- struct{}) {
	for lines := bufio.NewScanner(logs); lines.Scan(); {
		var entry struct{ Level, Msg, Address string }
		if err := json.Unmarshal(lines.Bytes(), &entry); err != nil {
			entry.Level, entry.Msg = "error", lines.Text()
		}
		had := d.address != "" && d.debug != ""
		switch {
		case !had && strings.HasPrefix(entry.Address, "http://"):
			address, _ := url.Parse(entry.Address) // it is seen when it does not answer
			d.address = address.Host
		case entry.Msg == "serving profiles":
			d.debug = entry.Address
		case entry.Level != "info" && !strings.Contains(lines.Text(), noSuchFile):
			d.mu.Lock()
			d.wrong = append(d.wrong, lines.Text())
			d.mu.Unlock()
		}
		if !had && d.address != "" && d.debug != "" {
			close(ready)
		}
	}
}

// close drains the daemon.
func (d *daemon) close() error {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-d.ended:
		return nil
	case <-time.After(endWithin):
		_ = d.cmd.Process.Kill() // it may end just now
		<-d.ended
		return errors.New("the daemon did not end")
	}
}

// logged is what it logged that was more than news.
func (d *daemon) logged() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.wrong)
}

func (d *daemon) pid() int { return d.cmd.Process.Pid }

// profile reads one of the daemon's profiles.
func (d *daemon) profile(ctx context.Context, what string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.debug+"/debug/pprof/"+what, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("profile %s: %w", what, errAnswer(resp.StatusCode))
	}
	return io.ReadAll(resp.Body)
}

// heaped are the figures at the end of a heap profile in words.
var heaped = regexp.MustCompile(`(?m)^# (HeapInuse|Stack|HeapAlloc|HeapReleased|HeapIdle|NumGC) = (\d+)`)

// heap is what the daemon's runtime says of its memory, in bytes.
func (d *daemon) heap(ctx context.Context) (map[string]int64, error) {
	text, err := d.profile(ctx, "heap?debug=1")
	if err != nil {
		return nil, err
	}
	said := make(map[string]int64)
	for _, m := range heaped.FindAllStringSubmatch(string(text), -1) {
		said[m[1]], _ = strconv.ParseInt(m[2], 10, 64) // it is digits
	}
	return said, nil
}

// keepProfiles writes profiles of a phase into a directory.
func (d *daemon) keepProfiles(ctx context.Context, dir, name string, phase time.Duration) error {
	for what, file := range map[string]string{
		"heap": "heap", "goroutine": "goroutine",
		fmt.Sprintf("profile?seconds=%d", max(int(phase.Seconds())-1, 1)): "cpu",
	} {
		text, err := d.profile(ctx, what)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name+"."+file+".pprof"), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
