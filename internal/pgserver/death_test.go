package pgserver_test

import (
	"bufio"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/pgserver"
	"github.com/cuelight/cuelight/internal/testwait"
)

// hang makes the test binary a process that has a server in some state, and
// then does nothing.
const hang = "PGSERVER_HANG"

func TestNothingOutlivesAProgramThatIsKilled(t *testing.T) {
	t.Parallel()
	states := map[string]func(*pgserver.Server) error{
		"running": func(*pgserver.Server) error { return nil },
		"stopped": (*pgserver.Server).Kill,
		"paused":  (*pgserver.Server).Pause,
	}
	if state := os.Getenv(hang); state != "" {
		s := start(t, pgserver.Options{})
		must(t, states[state](s))
		fmt.Printf("READY %s\n", filepath.Dir(s.SocketDir()))
		select {}
	}
	for state := range states {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			dir := abandon(t, state)
			testwait.Until(t, dir+" and all processes of the server are gone", func() bool {
				_, err := os.Stat(dir)
				return os.IsNotExist(err) && !mentioned(dir)
			})
		})
	}
}

// abandon runs a program that has a server, and kills it.
func abandon(t *testing.T, state string) string {
	t.Helper()
	start(t, pgserver.Options{}) // skips where there is no PostgreSQL
	self, err := os.Executable()
	must(t, err)
	cmd := osexec.Command(self, "-test.run=^TestNothingOutlivesAProgramThatIsKilled$")
	cmd.Env = append(os.Environ(), hang+"="+state)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	dir := ""
	for lines := bufio.NewScanner(out); dir == "" && lines.Scan(); {
		dir, _ = strings.CutPrefix(lines.Text(), "READY ")
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	if dir == "" {
		t.Fatal("it said nothing")
	}
	return dir
}

// mentioned reports whether a process has the directory in its command line, as
// keeper, cleaner and server have. (Without /proc it says no.)
func mentioned(dir string) bool {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return false
	}
	for _, file := range lines {
		if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), dir) {
			return true
		}
	}
	return false
}
