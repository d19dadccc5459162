package postgres_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/internal/waittest"
)

// readTree returns the content of every file below dir, by path.
func readTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			all[path] = d.Type().String()
			return err
		}
		b, err := os.ReadFile(path)
		all[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// wantRefused requires that Start fails with an error of the given kind and changes nothing
// below untouched.
func wantRefused(t *testing.T, o postgres.Options, kind error, untouched string) error {
	t.Helper()
	needServer(t)
	before := readTree(t, untouched)
	s, err := postgres.Start(t.Context(), o)
	if err == nil {
		closeServer(t, s)
		t.Fatal("the server started")
	}
	if kind != nil && !errors.Is(err, kind) {
		t.Errorf("error %v; want %v", err, kind)
	}
	if diff := cmp.Diff(before, readTree(t, untouched)); diff != "" {
		t.Error("files changed:", diff)
	}
	return err
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestStart_LeavesAnotherVersionsCluster(t *testing.T) {
	t.Parallel()
	dir := newDatabase(t)
	s := startServer(t, postgres.Options{Dir: dir})
	query(t, s.URL(), createKeep)
	closeServer(t, s)
	version := filepath.Join(dir, "data", "PG_VERSION")
	right, err := os.ReadFile(version)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, version, "99\n")

	err = wantRefused(t, postgres.Options{Dir: dir}, nil, filepath.Join(dir, "data"))
	var wrong *postgres.VersionError
	if !errors.As(err, &wrong) || wrong.Major != 99 || len(wrong.Found) == 0 {
		t.Errorf("%#v", err)
	}
	for _, word := range []string{"99", dir, wrong.Found[0].Version} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q; want %q in it", err, word)
		}
	}

	writeFile(t, version, string(right))
	s = startServer(t, postgres.Options{Dir: dir})
	if got := query(t, s.URL(), readKeep); got != "kept" {
		t.Errorf("rows: %q", got)
	}
}

func TestStart_LeavesForeignDirectories(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{
		"OtherThingsInTheDirectory": "holiday.mp4",
		"OtherThingsInData":         "data/holiday.mp4",
		"DataIsAFile":               "data",
		"ACluster":                  "PG_VERSION",
		"BrokenVersion":             "data/PG_VERSION",
		"LinkToNowhere":             "moved-to",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := newDir(t)
			writeFile(t, filepath.Join(dir, filepath.FromSlash(file)), "/not/there\n")
			watch := dir
			if file != "holiday.mp4" && file != "PG_VERSION" {
				watch = filepath.Join(dir, strings.Split(file, "/")[0]) // lock files may be added
			}
			wantRefused(t, postgres.Options{Dir: dir}, postgres.ErrNotCluster, watch)
		})
	}
}

func TestStart_RemovesLeftoversOnly(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeFile(t, filepath.Join(dir, "cuelight-initdb-123.tmp", "base", "1"), "half")
	writeFile(t, filepath.Join(dir, "data.keep"), "")
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	startServer(t, postgres.Options{Dir: dir}) // an empty directory data counts as none
	if _, err := os.Stat(filepath.Join(dir, "cuelight-initdb-123.tmp")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the incomplete cluster still exists: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "data.keep")); err != nil {
		t.Error(err)
	}
}

func TestStart_CancelledLeavesNoIncompleteCluster(t *testing.T) {
	t.Parallel()
	needServer(t)
	dir := newDir(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("cancelled by the test")
	go func() {
		for ctx.Err() == nil { // until initdb runs
			if m, _ := filepath.Glob(filepath.Join(dir, "cuelight-initdb-*.tmp", "base")); len(m) > 0 {
				cancel(stop)
			}
			time.Sleep(time.Millisecond)
		}
	}()
	s, err := postgres.Start(ctx, postgres.Options{Dir: dir})
	if err == nil {
		closeServer(t, s)
		t.Fatal("the server started")
	}
	if !errors.Is(err, stop) {
		t.Errorf("error %v; want the cause", err)
	}
	if m, _ := filepath.Glob(filepath.Join(dir, "*data*")); len(m) > 0 {
		t.Errorf("left behind: %v", m)
	}
	startServer(t, postgres.Options{Dir: dir})
}

func TestStart_FailureHasReasonAndAdvice(t *testing.T) {
	t.Parallel()
	dir := newDatabase(t)
	conf := filepath.Join(dir, "data", "postgresql.conf")
	good, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, conf, string(good)+"shared_bufers = 1GB\n")
	err = wantRefused(t, postgres.Options{Dir: dir}, nil, filepath.Join(dir, "data"))
	var e *postgres.Error
	if !errors.As(err, &e) {
		t.Fatalf("%#v", err)
	}
	if !strings.Contains(e.Text, "configuration") || e.Hint == "" || !strings.Contains(e.Detail, "shared_bufers") {
		t.Errorf("%+v", e)
	}
	writeFile(t, conf, string(good))
	startServer(t, postgres.Options{Dir: dir})
}

func TestStart_LeavesAForeignServer(t *testing.T) {
	t.Parallel()
	dir := newDatabase(t)
	s := startServer(t, postgres.Options{Dir: dir})
	bin := s.Binaries()
	closeServer(t, s)
	hba := filepath.Join(dir, "data", "pg_hba.conf")
	good, err := os.ReadFile(hba)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, hba, "local all all reject\n")
	account, err := postgres.LookupAccount()
	if err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(dir, "run")
	theirs := account.Command(bin.Path("postgres"), "-D", filepath.Join(dir, "data"), "-k", run, "-c", "listen_addresses=")
	child := runWhile(t, theirs, filepath.Join(run, ".s.PGSQL.5432"))

	_, err = postgres.Start(t.Context(), postgres.Options{Dir: dir})
	if !errors.Is(err, postgres.ErrInUse) {
		t.Errorf("%v", err)
	}
	wantRunning(t, child)
	writeFile(t, hba, string(good))
}

// runWhile runs cmd until the end of the test and returns when path exists, if it is not
// empty.
func runWhile(t *testing.T, cmd *exec.Cmd, path string) *childproc.Process {
	t.Helper()
	child, err := childproc.Start(cmd, childproc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Stop(context.Background(), syscall.SIGINT) })
	waittest.Until(t, path+" exists", func() bool {
		_, err := os.Stat(path)
		return path == "" || err == nil
	})
	return child
}

// wantRunning fails the test if the child has ended.
func wantRunning(t *testing.T, child *childproc.Process) {
	t.Helper()
	select {
	case <-child.Done():
		t.Errorf("the other program was ended: %v", child.Err())
	default:
	}
}
