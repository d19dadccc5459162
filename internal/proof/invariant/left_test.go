package invariant_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/proof/invariant"
)

func TestConnectionsOfTheNameAreFound(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	conf := pool.Config().ConnConfig.Copy()
	conf.RuntimeParams["application_name"] = "cuelight serve"
	left, err := pgx.ConnectConfig(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	defer left.Close(context.Background())
	if found, err := invariant.Connections(t.Context(), pool, "cuelight"); err != nil || len(found) != 1 {
		t.Errorf("found %q, %v; want one", found, err)
	}
	if found, err := invariant.Connections(t.Context(), left, "cuelight"); err != nil || len(found) != 0 {
		t.Errorf("found %q, %v; want none but its own", found, err)
	}
	if found, err := invariant.Connections(t.Context(), pool, "other"); err != nil || len(found) != 0 {
		t.Errorf("found %q, %v; want none of another name", found, err)
	}
}

func TestProcessesOfAGroupAreFoundUntilTheyEnd(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", "sleep 1000 & sleep 1000 & echo started; wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	group := cmd.Process.Pid
	ended := false
	defer func() {
		if !ended {
			_ = syscall.Kill(-group, syscall.SIGKILL)
			_ = cmd.Wait()
		}
	}()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	found, err := invariant.Processes(group)
	if err != nil || len(found) == 0 {
		t.Fatalf("found %q, %v", found, err)
	}
	if runtime.GOOS == "linux" && (len(found) != 3 || !strings.HasPrefix(found[0], strconv.Itoa(group)+" sh -c ")) {
		t.Errorf("found %q, want the shell and its two children", found)
	}
	if err := syscall.Kill(-group, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	ended = true
	// The children belong to whoever waits for orphans here, who takes a moment.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		found, err := invariant.Processes(group)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("found %q", found)
		}
	}
}

func TestFilesOfTheNamesAreFoundAnywhereBelow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a/b/x.part", "a/x.mp4", "tmp-1/y", "z.part"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := invariant.Files([]string{"*.part", "tmp-*"}, filepath.Join(dir, "a"), filepath.Join(dir, "nowhere"), dir)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, name := range []string{"a/b/x.part", "a/b/x.part", "tmp-1", "z.part"} {
		want = append(want, filepath.Join(dir, name))
	}
	if !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
	if _, err := invariant.Files([]string{"["}, dir); err == nil {
		t.Error("a pattern that is none is no error")
	}
}
