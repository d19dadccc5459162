package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cuelight/cuelight/internal/storage/s3test"
	"github.com/cuelight/cuelight/store"
)

// published returns where `cuelight show` says that a task is published.
func (p *workDir) published(task store.ID) string {
	p.t.Helper()
	shown := decode[struct {
		Published *string `json:"published"`
	}](p.run(0, "show", "--json", task.String()))
	if len(shown) != 1 || shown[0].Published == nil {
		return ""
	}
	return *shown[0].Published
}

// stop ends a daemon, which must have logged no errors.
func (r *process) stop() {
	r.t.Helper()
	r.signal(syscall.SIGTERM)
	r.end(0)
	if text := r.stderr(); strings.Contains(text, `"level":"error"`) {
		r.t.Errorf("it logged\n%s", text)
	}
}

// newWorkDirWithServer is newWorkDir with a bucket named videos.
func newWorkDirWithServer(t *testing.T) (*workDir, *s3test.Server) {
	t.Helper()
	s := s3test.Start(t, s3test.Options{})
	s.MakeBucket(t, "videos")
	p := newWorkDir(t)
	p.env = append(p.env, "CUELIGHT_PRESET=ultrafast", "AWS_ENDPOINT_URL="+s.Endpoint,
		"AWS_ACCESS_KEY_ID="+s3test.AccessKey, "AWS_SECRET_ACCESS_KEY="+s3test.SecretKey)
	return p, s
}

// newWorkDirWithBucket is newWorkDirWithServer, of which the program reaches the server through the proxy.
func newWorkDirWithBucket(t *testing.T) (*workDir, *s3test.Proxy) {
	t.Helper()
	p, s := newWorkDirWithServer(t)
	proxy := s3test.NewProxy(t, s)
	p.env = append(p.env, "AWS_ENDPOINT_URL="+proxy.Endpoint)
	return p, proxy
}

func TestRelocate_RecordsACopyInABucketAndOneBack(t *testing.T) {
	t.Parallel()
	p, s := newWorkDirWithServer(t)
	task := decode[reported](p.run(0, "run", "--json", "clip.mp4"))[0].TaskID
	data, publishDir := p.path("data"), filepath.Join(p.path("data"), "published")
	says := func(r *process, text string) {
		t.Helper()
		if got := r.stderr() + r.stdout.String(); !strings.Contains(got, text) {
			t.Errorf("it does not print %q but\n%s", text, got)
		}
	}
	// publishAgain runs the last stage again in a daemon with the given flags.
	publishAgain := func(flags ...string) {
		t.Helper()
		r := p.start(append([]string{"serve"}, flags...)...)
		r.waitForOutput(`"msg":"working"`, 1)
		p.run(0, "retry", task.String(), "--from", "assemble")
		r.waitForOutput(`"stage":"publish","attempt":1,"duration_ms"`, 1)
		r.stop()
	}
	to := []string{"relocate", "--to-data-dir", "s3://videos/data", "--to-publish-dir", "s3://videos/public"}
	s.Upload(t, filepath.Join(data, "tasks"), "videos", "data/tasks")
	missing := p.run(1, append(slices.Clone(to), "--dry-run")...)
	says(missing, "in s3://videos/public is missing")
	says(missing, "nothing was recorded")
	s.Upload(t, publishDir, "videos", "public")
	daemon := p.start("serve")
	daemon.waitForOutput(`"msg":"working"`, 1)
	says(p.run(0, append(slices.Clone(to), "--dry-run")...), "compared 5 results, ")
	says(p.run(2, to...), "works on this database")
	daemon.stop()
	if at := p.published(task); at != filepath.Join(publishDir, task.String(), "master.m3u8") {
		t.Errorf("before the relocation it is published at %s", at)
	}
	flags := []string{"--data-dir", "s3://videos/data", "--publish-dir", "s3://videos/public", "--local-dir", data}
	says(p.run(0, to...), "start workers with "+strings.Join(flags, " "))
	if at := p.published(task); at != "s3://videos/public/"+task.String()+"/master.m3u8" {
		t.Errorf("after the relocation it is published at %s", at)
	}
	says(p.run(2, "serve"), "of this database are in another location than ")
	says(p.run(2, to...), "of this database are in another location than ")
	publishAgain(flags...)

	s.Download(t, "videos", "data", p.path("back"))
	s.Download(t, "videos", "public", p.path("back/published"))
	for _, name := range []string{"tasks", "published"} {
		if err := os.RemoveAll(filepath.Join(data, name)); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(p.path("back/"+name), filepath.Join(data, name)); err != nil {
			t.Fatal(err)
		}
	}
	back := append([]string{"relocate", "--to-data-dir", data, "--to-publish-dir", publishDir}, flags...)
	says(p.run(0, back...), "start workers with --data-dir "+data+" --publish-dir "+publishDir)
	publishAgain()
	master, err := os.ReadFile(p.published(task))
	if err != nil || !strings.Contains(string(master), "gen-0003-") {
		t.Errorf("after all it serves %s, %v", master, err)
	}
}

func TestRelocate_TaskThatWaitsIsPublishedFromTheNewLocation(t *testing.T) {
	t.Parallel()
	p, s := newWorkDirWithServer(t)
	at := func(data string) []string {
		return []string{"--data-dir", data, "--publish-dir", p.path("published"), "--local-dir", p.path("local")}
	}
	r := p.start(append([]string{"serve"}, at("s3://videos/old")...)...) // records the locations
	r.waitForOutput(`"msg":"working"`, 1)
	r.stop()
	p.run(0, "submit", "--data-dir", "s3://videos/old", "clip.mp4")
	if err := os.Remove(p.path("clip.mp4")); err != nil {
		t.Fatal(err)
	}
	relocate := append([]string{"relocate", "--to-data-dir", "s3://videos/new"}, at("s3://videos/old")...)
	if got := p.run(1, relocate...).stderr(); !strings.Contains(got, "sources/") {
		t.Errorf("without a copy it printed\n%s", got)
	}
	copied := t.TempDir()
	s.Download(t, "videos", "old", copied)
	s.Upload(t, copied, "videos", "new")
	p.run(0, relocate...)
	r = p.start(append([]string{"serve"}, at("s3://videos/new")...)...)
	r.waitForOutput(`"stage":"publish","attempt":1,"duration_ms"`, 1)
	r.stop()
}

func TestRelocate_ReportsWrongUsage(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	if err := os.WriteFile(p.path("aws"), []byte("[default]\naws_access_key_id=k\naws_secret_access_key=s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, args := range map[string][]string{
		"--to-data-dir, --to-publish-dir or both are needed": {},
		"unknown option":            {"--to-data-dir", "s3://videos?colour=red"},
		"no such file or directory": {"--to-publish-dir", "s3://videos?credentials=" + p.path("aws")},
	} {
		if r := p.run(2, append([]string{"relocate"}, args...)...); !strings.Contains(r.stderr(), text) {
			t.Errorf("%q: it printed\n%s", args, r.stderr())
		}
	}
}
