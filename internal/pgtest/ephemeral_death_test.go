package pgtest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
)

// ephemeralStateEnv makes the test binary a program with a server in some state.
const ephemeralStateEnv = "POSTGRES_TEST_EPHEMERAL_STATE"

func TestEphemeral_EndsWithItsProgram(t *testing.T) {
	t.Parallel()
	states := map[string]func(*pgtest.Ephemeral) error{
		"running": func(*pgtest.Ephemeral) error { return nil },
		"stopped": (*pgtest.Ephemeral).Kill,
		"frozen":  (*pgtest.Ephemeral).Freeze,
	}
	if state := os.Getenv(ephemeralStateEnv); state != "" {
		s := startEphemeral(t, pgtest.EphemeralOptions{})
		must(t, states[state](s))
		fmt.Printf("READY %s\n", filepath.Dir(s.SocketDir()))
		select {}
	}
	for state := range states {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			dir := killProgramWithServer(t, state)
			waittest.Until(t, dir+" and all processes of the server are gone", func() bool {
				_, err := os.Stat(dir)
				return os.IsNotExist(err) && !isInCommandLine(dir)
			})
		})
	}
}

// killProgramWithServer runs a program that has a server, and kills the program. It
// returns the server's directory.
func killProgramWithServer(t *testing.T, state string) string {
	t.Helper()
	startEphemeral(t, pgtest.EphemeralOptions{}) // skips the test on a machine without PostgreSQL
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self, "-test.run=^TestEphemeral_EndsWithItsProgram$")
	cmd.Env = append(os.Environ(), ephemeralStateEnv+"="+state)
	ready := make(chan string, 1)
	cmd.Stdout = childproc.Lines(func(line []byte) {
		if dir, ok := strings.CutPrefix(string(line), "READY "); ok {
			ready <- dir
		}
	})
	program, err := childproc.Start(cmd, childproc.Options{LeavesGroup: true})
	must(t, err)
	select {
	case dir := <-ready:
		must(t, program.Signal(syscall.SIGKILL))
		<-program.Done()
		return dir
	case <-program.Done():
		t.Fatalf("the program printed no directory: %v", program.Err())
		return ""
	}
}

// isInCommandLine reports whether the command line of a process contains the
// directory, as those of keeper, cleaner and server do. Without /proc it is false.
func isInCommandLine(dir string) bool {
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
