package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cuelight/cuelight/store"
)

// terminal is a pseudo-terminal of 80 columns that keeps what it is sent.
type terminal struct {
	master *os.File // what is typed is written here
	slave  *os.File
	read   sync.WaitGroup
	text   strings.Builder
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	term := &terminal{master: master, slave: slave}
	term.read.Go(func() {
		for buf := make([]byte, 4096); ; {
			n, err := master.Read(buf)
			term.text.Write(buf[:n])
			if err != nil {
				return // EIO: the other side was closed by all
			}
		}
	})
	return term
}

// run runs the program on the terminal to its end, and returns what it wrote.
func (term *terminal) run(t *testing.T, p *workDir, code int, args ...string) string {
	t.Helper()
	cmd := exec.Command("cuelight", args...)
	cmd.Dir, cmd.Env = p.dir, append(p.env, "TERM=xterm")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.slave, term.slave, term.slave
	err := cmd.Run()
	term.slave.Close()
	term.read.Wait()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("exit code %d (%v), want %d; it wrote\n%q", got, err, code, term.text.String())
	}
	return term.text.String()
}

func TestTerminal_ShowsProgressInPlaceAndRemovesIt(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	text := newTerminal(t).run(t, p, 3, "run", "clip.mp4", "missing.mp4")
	for _, want := range []string{"clip.mp4  transcode  ", "░", "1 of 2 done", "\x1b[31mfailed\x1b[0m", "ffplay"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q", want)
		}
	}
	if strings.Contains(text, "started") {
		t.Error("lines for files are on a terminal")
	}
	// No sequence moves the cursor after the last lines.
	last := strings.LastIndex(text, "\x1b[J")
	if rest := text[last:]; last < 0 || !strings.Contains(rest, "Watch it:") {
		t.Errorf("the block is drawn over the end: %q", rest)
	}
	if strings.Contains(text, "\x1b[?") {
		t.Error("a setting of the terminal was changed")
	}
}

func TestTerminal_HasNoColoursWithNoColor(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	p.env = append(p.env, "NO_COLOR=1")
	if text := newTerminal(t).run(t, p, 1, "run", "missing.mp4"); strings.Contains(text, "\x1b[31m") ||
		!strings.Contains(text, "failed") {
		t.Errorf("it wrote %q", text)
	}
}

func TestTerminal_ShortensLists(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	long := strings.Repeat("long", 50) + ".mp4"
	p.run(0, "submit", long)
	id := p.list()[0].TaskID
	text := newTerminal(t).run(t, p, 0, "list")
	if !strings.Contains(text, shortID(id)) || strings.Contains(text, id.String()) ||
		strings.Contains(text, long) || !strings.Contains(text, "~") {
		t.Errorf("it wrote %q", text)
	}
}

func TestTerminal_RetryAllAsksForConfirmation(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	p.run(1, "run", "missing.mp4")
	for _, c := range []struct {
		answer string
		code   int
		status store.Status
	}{{"", 1, store.StatusDead}, {"n", 1, store.StatusDead}, {"yes", 0, store.StatusPending}} {
		term := newTerminal(t)
		if _, err := term.master.WriteString(c.answer + "\n"); err != nil {
			t.Fatal(err)
		}
		text := term.run(t, p, c.code, "retry", "--all")
		if !strings.Contains(text, "Retry 1 task? [y/N]") {
			t.Errorf("it wrote %q", text)
		}
		if got := p.list()[0].Status; got != c.status {
			t.Errorf("after the answer %q the task is %s", c.answer, got)
		}
	}
}
