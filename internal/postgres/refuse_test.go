package postgres_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cuelight/cuelight/internal/postgres"
)

// contents maps every file below dir to what is in it.
func contents(t *testing.T, dir string) map[string]string {
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

// refused starts and expects an error of the given kind that changes nothing
// below untouched.
func refused(t *testing.T, o postgres.Options, kind error, untouched string) error {
	t.Helper()
	needServer(t)
	before := contents(t, untouched)
	s, err := postgres.Start(t.Context(), o)
	if err == nil {
		end(t, s)
		t.Fatal("it started")
	}
	if kind != nil && !errors.Is(err, kind) {
		t.Errorf("%v is not about %v", err, kind)
	}
	if diff := cmp.Diff(before, contents(t, untouched)); diff != "" {
		t.Error("it changed what was there:", diff)
	}
	return err
}

func write(t *testing.T, path, text string) {
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
	dir := database(t)
	s := begin(t, postgres.Options{Dir: dir})
	do(t, s.URL(), createKeep)
	end(t, s)
	version := filepath.Join(dir, "data", "PG_VERSION")
	right, err := os.ReadFile(version)
	if err != nil {
		t.Fatal(err)
	}
	write(t, version, "99\n")

	err = refused(t, postgres.Options{Dir: dir}, nil, filepath.Join(dir, "data"))
	var wrong *postgres.VersionError
	if !errors.As(err, &wrong) || wrong.Major != 99 || len(wrong.Found) == 0 {
		t.Errorf("%#v", err)
	}
	for _, word := range []string{"99", dir, wrong.Found[0].Version} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not name %q", err, word)
		}
	}

	write(t, version, string(right))
	s = begin(t, postgres.Options{Dir: dir})
	if got := do(t, s.URL(), readKeep); got != "kept" {
		t.Errorf("found %q", got)
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
			dir := directory(t)
			write(t, filepath.Join(dir, filepath.FromSlash(file)), "/not/there\n")
			watch := dir
			if file != "holiday.mp4" && file != "PG_VERSION" {
				watch = filepath.Join(dir, strings.Split(file, "/")[0]) // lock files may come
			}
			refused(t, postgres.Options{Dir: dir}, postgres.ErrNotCluster, watch)
		})
	}
}

func TestStart_RemovesLeftoversOnly(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	write(t, filepath.Join(dir, "cuelight-initdb-123.tmp", "base", "1"), "half")
	write(t, filepath.Join(dir, "data.keep"), "")
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	begin(t, postgres.Options{Dir: dir}) // an empty data is as good as none
	if _, err := os.Stat(filepath.Join(dir, "cuelight-initdb-123.tmp")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the leftover: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "data.keep")); err != nil {
		t.Error(err)
	}
}

func TestStart_CancelledLeavesNoIncompleteCluster(t *testing.T) {
	t.Parallel()
	needServer(t)
	dir := directory(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("changed my mind")
	go func() {
		for ctx.Err() == nil { // until initdb is at work
			if m, _ := filepath.Glob(filepath.Join(dir, "cuelight-initdb-*.tmp", "base")); len(m) > 0 {
				cancel(stop)
			}
			time.Sleep(time.Millisecond)
		}
	}()
	s, err := postgres.Start(ctx, postgres.Options{Dir: dir})
	if err == nil {
		end(t, s)
		t.Fatal("it started")
	}
	if !errors.Is(err, stop) {
		t.Errorf("%v does not say why", err)
	}
	if m, _ := filepath.Glob(filepath.Join(dir, "*data*")); len(m) > 0 {
		t.Errorf("left: %v", m)
	}
	begin(t, postgres.Options{Dir: dir})
}

func TestStart_FailureHasReasonAndAdvice(t *testing.T) {
	t.Parallel()
	dir := database(t)
	conf := filepath.Join(dir, "data", "postgresql.conf")
	good, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	write(t, conf, string(good)+"shared_bufers = 1GB\n")
	err = refused(t, postgres.Options{Dir: dir}, nil, filepath.Join(dir, "data"))
	var e *postgres.Error
	if !errors.As(err, &e) {
		t.Fatalf("%#v", err)
	}
	if !strings.Contains(e.Problem, "configuration") || e.Advice == "" || !strings.Contains(e.Detail, "shared_bufers") {
		t.Errorf("%+v", e)
	}
	write(t, conf, string(good))
	begin(t, postgres.Options{Dir: dir})
}

func TestStart_LeavesAForeignServer(t *testing.T) {
	t.Parallel()
	dir := database(t)
	s := begin(t, postgres.Options{Dir: dir})
	bin := s.Binaries()
	end(t, s)
	hba := filepath.Join(dir, "data", "pg_hba.conf")
	good, err := os.ReadFile(hba)
	if err != nil {
		t.Fatal(err)
	}
	write(t, hba, "local all all reject\n")
	account, err := postgres.LookupAccount("")
	if err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(dir, "run")
	theirs := account.Command(bin.Path("postgres"), "-D", filepath.Join(dir, "data"), "-k", run, "-c", "listen_addresses=")
	ended := runWhile(t, theirs, filepath.Join(run, ".s.PGSQL.5432"))

	_, err = postgres.Start(t.Context(), postgres.Options{Dir: dir})
	if !errors.Is(err, postgres.ErrInUse) {
		t.Errorf("%v", err)
	}
	stillRuns(t, ended)
	write(t, hba, string(good))
}

// runWhile runs cmd for the rest of the test and returns when path exists, if
// there is one. The channel is closed should cmd end before.
func runWhile(t *testing.T, cmd *exec.Cmd, path string) <-chan struct{} {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // whatever its result, it must not have ended
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		<-ended
	})
	for deadline := time.Now().Add(20 * time.Second); path != ""; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come", path)
		}
	}
	return ended
}

// stillRuns fails the test if what runWhile started has ended.
func stillRuns(t *testing.T, ended <-chan struct{}) {
	t.Helper()
	select {
	case <-ended:
		t.Error("somebody else's process was ended")
	default:
	}
}
