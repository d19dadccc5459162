package postgres

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExplain_FindsTheCauseInServerMessages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		says, text string
		is         error
	}{
		{`FATAL:  could not write lock file "postmaster.pid": No space left on device`, "the disk is full", nil},
		{`initdb: error: could not create directory "/x": Disk quota exceeded`, "quota", nil},
		{`FATAL:  could not open file "/x/postmaster.pid": Read-only file system`, "read-only", nil},
		{`FATAL:  lock file "postmaster.pid" already exists`, "another server", ErrInUse},
		{`FATAL:  pre-existing shared memory block (key 1, ID 2) is still in use`, "another server", ErrInUse},
		{`FATAL:  data directory "/x" has wrong ownership`, "another user", ErrAccount},
		{`"root" execution of the PostgreSQL server is not permitted.
HINT: initdb: error: cannot be run as root`, "root", ErrAccount},
		{`FATAL:  data directory "/x" has invalid permissions`, "open to other users", nil},
		{`FATAL:  database files are incompatible with server`, "another version", nil},
		{`FATAL:  could not create shared memory segment: No such device`, "shared memory", nil},
		{`FATAL:  could not map anonymous shared memory: Cannot allocate memory`, "shared memory", nil},
		{`LOG:  could not bind: x
FATAL:  could not open file "/x": Permission denied`, "no permission", nil},
		{`postgres: error while loading shared libraries: libpq.so.5`, "library", ErrNotInstalled},
		{`FATAL:  unrecognized configuration parameter "x"`, "configuration", nil},
		{`PANIC:  could not locate a valid checkpoint record`, "damaged", nil},
		{`FATAL:  an unknown problem`, "the server ended", nil},
	} {
		e := explain(c.says)
		if !strings.Contains(e.Text, c.text) || !errors.Is(e.Err, c.is) {
			t.Errorf("%q is explained as %q (%v), want %q (%v)", c.says, e.Text, e.Err, c.text, c.is)
		}
		if e.Detail != c.says {
			t.Errorf("%q became %q", c.says, e.Detail)
		}
	}
}

func TestError_HasProblemAdviceAndDetail(t *testing.T) {
	t.Parallel()
	e := &Error{Text: "the disk is full", Hint: "make room", Detail: "line one\nline two\n"}
	if got, want := e.Error(), "the disk is full; make room\n  line one\n  line two"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := (&Error{Text: "the disk is full"}).Error(), "the disk is full"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestRotateLog_KeepsTheEnd(t *testing.T) {
	t.Parallel()
	c := &cluster{home: t.TempDir()}
	log, from, err := c.openLog()
	if err != nil || from != 0 {
		t.Fatal(from, err)
	}
	defer log.Close()
	say := func(s string) {
		if _, err := log.WriteString(s); err != nil {
			t.Fatal(err)
		}
	}
	say(strings.Repeat("old\n", 10))
	if err := c.rotateLog(100); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(c.home, oldLogName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a small log was rotated: %v", err)
	}
	say(strings.Repeat("new\n", 20))
	if err := c.rotateLog(80); err != nil {
		t.Fatal(err)
	}
	say("latest\n") // by the same server, through the same descriptor
	old, err := os.ReadFile(filepath.Join(c.home, oldLogName))
	if err != nil || string(old) != strings.Repeat("new\n", 20) {
		t.Errorf("the old log is %q, %v", old, err)
	}
	now, err := os.ReadFile(filepath.Join(c.home, logName))
	if err != nil || string(now) != "latest\n" {
		t.Errorf("the log is %q, %v", now, err)
	}
	if got := c.logSince(1 << 30); got != "latest\n" {
		t.Errorf("from an offset before the rotation: %q", got)
	}
	if got := c.logSince(3); got != "est\n" {
		t.Errorf("from offset 3: %q", got)
	}
}

func TestSocketDir_RejectsAnotherUsersDirectory(t *testing.T) {
	t.Parallel()
	self := Account{UID: os.Geteuid()}
	open := filepath.Join(t.TempDir(), "open")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{open, link} {
		if err := ownDir(dir, self); err == nil {
			t.Errorf("%s was accepted", dir)
		}
	}
	theirs := filepath.Join(t.TempDir(), "theirs")
	if err := os.Mkdir(theirs, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := ownDir(theirs, Account{UID: os.Geteuid() + 1}); err == nil {
		t.Error("a directory of another user was accepted")
	}
}

func TestReadPidFile_AcceptsAnIncompleteFile(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]pidFile{
		"": {},
		"123\n/data\n1790000000\n5432\n/run/x\n\n  1 2\nready   \n": {pid: 123, port: "5432", socketDir: "/run/x"},
		"123\n/data\n1790000000\n5432\n":                            {pid: 123, port: "5432"},
		"123\n":                                                     {pid: 123},
		"-7\n/data\n":                                               {pid: -7},
		"nonsense":                                                  {},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "postmaster.pid"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readPidFile(dir); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	if got, err := readPidFile(t.TempDir()); err != nil || got != (pidFile{}) {
		t.Errorf("without a file: %+v, %v", got, err)
	}
}

func TestSystemAccount_AdvisesToCreateTheUser(t *testing.T) {
	t.Parallel()
	_, err := systemAccount("nobody-of-that-name")
	if !errors.Is(err, ErrAccount) || !strings.Contains(err.Error(), "useradd") {
		t.Errorf("error %v; want ErrAccount with a hint", err)
	}
}
