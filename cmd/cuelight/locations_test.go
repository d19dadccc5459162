package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cuelight/cuelight/stages/video"
)

func TestServe_RefusesLocationsThatAreNotThoseOfTheTasks(t *testing.T) {
	t.Parallel()
	p, proxy := newWorkDirWithBucket(t)
	serve := func(flags ...string) {
		t.Helper()
		r := p.start(append([]string{"serve"}, flags...)...)
		r.waitForOutput(`"msg":"working"`, 1)
		r.stop()
	}
	refused := func(text string, flags ...string) string {
		t.Helper()
		got := p.run(2, append([]string{"serve"}, flags...)...).stderr()
		if !strings.Contains(got, text+" of this database are in another location than ") {
			t.Errorf("serve %q printed\n%s", flags, got)
		}
		if got := p.run(1, append([]string{"doctor"}, flags...)...).stdout.String(); !strings.Contains(got, text+" of this database are in ") {
			t.Errorf("doctor %q printed\n%s", flags, got)
		}
		return got
	}
	serve()
	other := p.path("other")
	message := refused("published videos", "--publish-dir", other)
	if left, err := os.ReadDir(other); err != nil || len(left) > 0 {
		t.Errorf("in the other directory: %v, %v", left, err)
	}
	var ids atomic.Int32
	proxy.Observe(func(_ int, r *http.Request) {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, video.IDFile) {
			ids.Add(1)
		}
	}, nil)
	refused("results", "--data-dir", "s3://videos/typo", "--publish-dir", p.path("data/published"))
	if n := ids.Load(); n > 0 {
		t.Errorf("%d ids were written to the other bucket", n)
	}

	id, err := os.ReadFile(filepath.Join(p.path("data"), "published", video.IDFile))
	if err != nil || !strings.Contains(message, "write "+strings.TrimSpace(string(id))+" into") {
		t.Errorf("serve printed\n%sthe id is %q, %v", message, id, err)
	}
	if err := os.WriteFile(filepath.Join(other, video.IDFile), id, 0o644); err != nil {
		t.Fatal(err)
	}
	serve("--publish-dir", other)
}

func TestCommands_CreateNoDatabaseForTheFilesOfAnother(t *testing.T) {
	t.Parallel()
	p := newPrivateWorkDir(t)
	p.run(0, "run", "clip.mp4")
	database := p.path("data/postgres")
	if err := os.Rename(database, p.path("elsewhere")); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"run", "clip.mp4"}, {"submit", "clip.mp4"}, {"serve"}, {"migrate"}} {
		if got := p.run(2, args...).stderr(); !strings.Contains(got, "has the files of another database's tasks") {
			t.Errorf("%q printed\n%s", args, got)
		}
	}
	if _, err := os.Stat(database); err == nil {
		t.Error("there is a new database")
	}
	if err := os.Rename(p.path("elsewhere"), database); err != nil {
		t.Fatal(err)
	}
	p.run(0, "run", "clip.mp4")
}

func TestRelocate_TakesNoDataAwayFromThePrivateDatabase(t *testing.T) {
	t.Parallel()
	p := newPrivateWorkDir(t)
	p.env = append(p.env, "AWS_ACCESS_KEY_ID=k", "AWS_SECRET_ACCESS_KEY=s")
	got := p.run(2, "relocate", "--data-dir", "s3://videos/data", "--local-dir", p.path("data"), "--to-data-dir", p.path("new")).stderr()
	if !strings.Contains(got, "use --to-data-dir "+p.path("data")) {
		t.Errorf("it printed\n%s", got)
	}
}

func TestBucketAddress_WithASecretIsRefusedAndNotPrinted(t *testing.T) {
	t.Parallel()
	p := newPrivateWorkDir(t)
	for command, code := range map[string]int{"serve": 2, "doctor": 1} {
		r := p.run(code, command, "--data-dir", "s3://key:hush@videos/data")
		if got := r.stderr() + r.stdout.String(); strings.Contains(got, "hush") {
			t.Errorf("%s printed\n%s", command, got)
		}
	}
}

func TestShow_NamesTheVersionThatPlaysWhileAnotherIsMade(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	other := p.path("other")
	r := p.start("serve", "--publish-dir", other)
	r.waitForOutput(`"msg":"working"`, 1)
	r.stop()
	p.run(0, "submit", "clip.mp4")
	id := p.list()[0].TaskID
	master := filepath.Join(other, id.String(), "master.m3u8")
	shows := func() bool {
		t.Helper()
		return strings.Contains(p.run(0, "show", id.String()).stdout.String(), "published  "+master+" (a new version is in progress)\n")
	}
	if shows() {
		t.Error("a file that does not exist is shown")
	}
	if err := os.MkdirAll(filepath.Dir(master), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(master, []byte("#EXTM3U\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if !shows() {
		t.Error("the version that was published early is not shown")
	}
	if got := p.published(id); got != "" {
		t.Errorf("the JSON has %q before the task is completed", got)
	}
}
