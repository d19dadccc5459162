package main

import (
	"net/http"
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

// newWorkDirWithBucket is newWorkDir with a bucket named videos. The program reaches it through the proxy.
func newWorkDirWithBucket(t *testing.T) (*workDir, *s3test.Proxy) {
	t.Helper()
	s := s3test.Start(t, s3test.Options{})
	s.MakeBucket(t, "videos")
	proxy := s3test.NewProxy(t, s)
	p := newWorkDir(t)
	p.env = append(p.env, "CUELIGHT_PRESET=ultrafast", "AWS_ENDPOINT_URL="+proxy.Endpoint,
		"AWS_ACCESS_KEY_ID="+s3test.AccessKey, "AWS_SECRET_ACCESS_KEY="+s3test.SecretKey)
	return p, proxy
}

func TestMove_BringsTasksToABucketAndBack(t *testing.T) {
	t.Parallel()
	p, _ := newWorkDirWithBucket(t)
	task := decode[reported](p.run(0, "run", "--json", "clip.mp4"))[0].TaskID
	data, publishDir := p.path("data"), filepath.Join(p.path("data"), "published")
	to := []string{"move", "--to-data-dir", "s3://videos/data", "--to-publish-dir", "s3://videos/public"}
	says := func(r *process, text string) {
		t.Helper()
		if got := r.stderr() + r.stdout.String(); !strings.Contains(got, text) {
			t.Errorf("it does not print %q but\n%s", text, got)
		}
	}
	// retry runs stages again in a daemon with the given flags.
	retry := func(from string, flags ...string) {
		t.Helper()
		r := p.start(append([]string{"serve"}, flags...)...)
		r.waitForOutput(`"msg":"working"`, 1)
		p.run(0, "retry", task.String(), "--from", from)
		r.waitForOutput(`"stage":"publish","attempt":1,"duration_ms"`, 1)
		r.stop()
	}

	says(p.run(0, append(slices.Clone(to), "--dry-run")...), "5 of 5 directories to copy") // four results and a generation
	daemon := p.start("serve")
	daemon.waitForOutput(`"msg":"working"`, 1)
	says(p.run(2, to...), "works on this database")
	says(p.run(0, append(slices.Clone(to), "--copy-only")...), "1/1 "+task.String())
	daemon.stop()
	if at := p.published(task); at != filepath.Join(publishDir, task.String(), "master.m3u8") {
		t.Errorf("after the copy it is published at %s", at)
	}
	moved := p.run(0, to...)
	says(moved, "nothing to copy")
	flags := []string{"--data-dir", "s3://videos/data", "--publish-dir", "s3://videos/public", "--local-dir", data}
	says(moved, "start workers with "+strings.Join(flags, " "))
	if at := p.published(task); at != "s3://videos/public/"+task.String()+"/master.m3u8" {
		t.Errorf("after the move it is published at %s", at)
	}
	says(p.run(2, "serve"), "was moved to s3://videos/")
	says(p.run(2, "run", "other.mp4"), "was moved to s3://videos/")
	says(p.run(1, "doctor"), "was moved to s3://videos/")
	retry("transcode", flags...)
	says(p.run(0, append(slices.Clone(to), "--remove")...), "1 task removed from the old locations")
	if left, err := os.ReadDir(filepath.Join(data, "tasks")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}

	back := append([]string{"move", "--to-data-dir", data, "--to-publish-dir", publishDir}, flags...)
	says(p.run(0, back...), "start workers with --data-dir "+data+" --publish-dir "+publishDir)
	retry("publish")
	master, err := os.ReadFile(p.published(task))
	if err != nil || !strings.Contains(string(master), "gen-0003-") {
		t.Errorf("after all it serves %s, %v", master, err)
	}
}

func TestMove_NamesVideosThatArePublishedElsewhere(t *testing.T) {
	t.Parallel()
	p, _ := newWorkDirWithBucket(t)
	other := p.path("other")
	task := decode[reported](p.run(0, "run", "--json", "--publish-dir", other, "clip.mp4"))[0].TaskID
	if err := os.Mkdir(filepath.Join(p.path("data"), "published"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := p.run(0, "move", "--to-data-dir", "s3://videos/data", "--to-publish-dir", "s3://videos/public")
	if !strings.Contains(r.stderr(), task.String()+": its published video is not in ") ||
		!strings.Contains(r.stderr(), "it was published in "+other) {
		t.Errorf("it printed\n%s", r.stderr())
	}
	if at := p.published(task); at != filepath.Join(other, task.String(), "master.m3u8") {
		t.Errorf("it is published at %s", at)
	}
}

func TestMove_TaskThatWaitsIsPublishedFromTheNewLocation(t *testing.T) {
	t.Parallel()
	p, _ := newWorkDirWithBucket(t)
	at := func(data string) []string {
		return []string{"--data-dir", data, "--publish-dir", p.path("published"), "--local-dir", p.path("local")}
	}
	p.run(0, "submit", "--data-dir", "s3://videos/old", "clip.mp4")
	if err := os.Remove(p.path("clip.mp4")); err != nil {
		t.Fatal(err)
	}
	move := append([]string{"move", "--to-data-dir", "s3://videos/new"}, at("s3://videos/old")...)
	if got := p.run(0, append(slices.Clone(move), "--copy-only")...).stderr(); strings.Contains(got, "stored source") {
		t.Errorf("a copy while workers may ingest it printed\n%s", got)
	}
	for _, last := range []string{"--dry-run", "--remove"} {
		if got := p.run(0, append(slices.Clone(move), last)...).stderr(); !strings.Contains(got, "1 of 1 stored source copied") {
			t.Errorf("%s: it printed\n%s", last, got)
		}
	}
	late := p.run(1, "submit", "--data-dir", "s3://videos/old", "other.mp4")
	if got := late.stderr(); !strings.Contains(got, "was moved to s3://videos/new") {
		t.Errorf("submit to the old location printed\n%s", got)
	}
	r := p.start(append([]string{"serve"}, at("s3://videos/new")...)...)
	r.waitForOutput(`"stage":"publish","attempt":1,"duration_ms"`, 1)
	r.stop()
}

func TestMove_ReportsWrongUsage(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	for text, args := range map[string][]string{
		"--to-data-dir, --to-publish-dir or both are needed": {},
		"cannot be combined with --remove":                   {"--to-data-dir", "x", "--copy-only", "--remove"},
		"unknown option":                                     {"--to-data-dir", "s3://videos?colour=red"},
		"no such file or directory":                          {"--to-publish-dir", "s3://videos?credentials=" + p.path("aws")},
	} {
		if err := os.WriteFile(p.path("aws"), []byte("[default]\naws_access_key_id=k\naws_secret_access_key=s\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := p.run(2, append([]string{"move"}, args...)...); !strings.Contains(r.stderr(), text) {
			t.Errorf("%q: it printed\n%s", args, r.stderr())
		}
	}
}

func TestMove_CopiesNothingWhileAWorkerThatHasJustRegisteredWorks(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t, s3test.Options{})
	s.MakeBucket(t, "videos")
	proxy := s3test.NewProxy(t, s)
	p := newWorkDir(t)
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		p.env = append(p.env, name+"="+s.Env()(name))
	}
	p.env = append(p.env, "AWS_ENDPOINT_URL="+proxy.Endpoint)
	move := []string{"move", "--data-dir", "s3://videos/data", "--to-data-dir", p.path("new")}
	p.run(0, append(slices.Clone(move), "--dry-run")...)
	if _, err := os.Stat(p.path("new")); err == nil {
		t.Error("a dry run created the directory to move to")
	}
	conn := p.connect()
	change := func(sql string) {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Error(err)
		}
	}
	proxy.Observe(func(_ int, r *http.Request) {
		switch {
		case r.Method == http.MethodPut: // the old location is marked
			change("insert into workers (name, host, pid) values ('run', 'host', 1)")
		case r.URL.Query().Get("prefix") == "data/tasks/":
			change("update workers set stopped_at = now()")
		}
	}, nil)
	if got := p.run(2, move...).stderr(); !strings.Contains(got, "works on this database") {
		t.Errorf("move printed\n%s", got)
	}
	change("update workers set stopped_at = now()")
	proxy.Observe(nil, nil)
	p.run(0, move...)
}

func TestMove_IsContinuedAfterItWasStopped(t *testing.T) {
	t.Parallel()
	p, proxy := newWorkDirWithBucket(t)
	task := decode[reported](p.run(0, "run", "--json", "clip.mp4"))[0].TaskID
	move := []string{"move", "--to-data-dir", "s3://videos/data", "--to-publish-dir", "s3://videos/public"}
	for name, stop := range map[string]func(r *process){
		"interrupted": func(r *process) { r.signal(syscall.SIGINT); r.end(130) },
		"killed":      func(r *process) { r.signal(syscall.SIGKILL); r.end(-1) },
	} {
		reached, goOn := make(chan struct{}), make(chan struct{})
		proxy.Reset()
		proxy.Observe(func(number int, _ *http.Request) {
			switch {
			case number == 30:
				close(reached)
				fallthrough
			case number > 30:
				<-goOn
			}
		}, nil)
		r := p.start(move...)
		select {
		case <-reached:
		case err := <-r.ended:
			t.Fatalf("%s: it ended: %v\n%s", name, err, r.stderr())
		}
		stop(r)
		proxy.Observe(nil, nil)
		close(goOn)
		proxy.Wait()
		if got := p.run(2, "serve").stderr(); !strings.Contains(got, "is not complete") {
			t.Errorf("%s: serve printed\n%s", name, got)
		}
	}
	p.run(0, move...)
	if at := p.published(task); at != "s3://videos/public/"+task.String()+"/master.m3u8" {
		t.Errorf("it is published at %s", at)
	}
	if got := p.run(0, move...).stderr(); !strings.Contains(got, "everything was moved before") {
		t.Errorf("a repeated move printed\n%s", got)
	}
	elsewhere := p.run(2, "move", "--to-data-dir", "s3://videos/elsewhere")
	if got := elsewhere.stderr(); !strings.Contains(got, "move it from there") {
		t.Errorf("a move to elsewhere printed\n%s", got)
	}
}
