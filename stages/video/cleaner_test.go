package video

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/flock"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/store"
)

// killedVariable names the step at which the test process will be killed.
const killedVariable = "CUELIGHT_TEST_KILLED"

func TestCleaner_RemovesOnlyAbandonedFiles(t *testing.T) {
	t.Parallel()
	for _, at := range []struct{ stage, note string }{
		{ingestStage, "probing"}, {transcodeStage, "transcoding"}, {metadataStage, "poster"},
		{assembleStage, "checking"}, {publishStage, "publishing"}, {publishStage, "switching"},
	} {
		t.Run(at.stage+"/"+at.note, func(t *testing.T) {
			t.Parallel()
			h, m := readyHarness(t)
			h.mustPublish(m)
			before := snapshot(t, h.DataDir, h.PublishDir)
			killAtNote(t, h, at.stage, at.note)
			left := 0
			for path := range snapshot(t, h.DataDir, h.PublishDir) {
				if before[path] == "" {
					left++
				}
			}
			if done := h.mustClean(0); done != (CleanResult{}) {
				t.Errorf("before the time, it removed %+v", done)
			}
			if done := h.mustClean(-1); done.Removed == 0 {
				t.Errorf("it removed %+v of %d files", done, left)
			}
			wantSame(t, before, snapshot(t, h.DataDir, h.PublishDir))
			if names := append(list(t, h.TaskDir(h.job.Task)), list(t, h.PublishedDir(h.job.Task))...); len(names) != 4+3 {
				t.Errorf("files: %q", names)
			}
		})
	}
}

// killAtNote runs a stage in another process and kills it at a step.
func killAtNote(t *testing.T, h *harness, stage, note string) {
	t.Helper()
	reached := filepath.Join(t.TempDir(), "reached")
	cmd := exec.Command(os.Args[0], "-test.run", "^TestCleaner_HelperLeavesFilesOfAKilledAttempt$")
	cmd.Env = append(os.Environ(),
		killedVariable+"="+strings.Join([]string{stage, note, h.DataDir, h.PublishDir, clips.picture, reached}, "|"))
	child, err := childproc.Start(cmd, childproc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for !exists(reached) {
		select {
		case <-child.Done():
			t.Fatalf("it ended before it was killed: %v", child.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	child.Kill()
}

func TestCleaner_HelperLeavesFilesOfAKilledAttempt(t *testing.T) {
	order := strings.Split(os.Getenv(killedVariable), "|")
	if len(order) != 6 {
		t.Skip("TestCleaner_RemovesOnlyAbandonedFiles runs this")
	}
	p := prototype()
	if p.err != nil {
		t.Fatal(p.err)
	}
	h := newHarness(t, order[4])
	h.DataDir, h.PublishDir = order[2], order[3]
	h.onNote(order[1], true, func() {
		if err := os.WriteFile(order[5], nil, 0o600); err != nil {
			t.Error(err)
		}
		select {}
	})
	t.Errorf("it was not killed: %v", h.run(t.Context(), order[0], resultsIn(t, h, p.allResults)))
}

// resultsIn returns m with the names of the existing directories, because each
// process creates its own prototype.
func resultsIn(t *testing.T, h *harness, m allResults) allResults {
	t.Helper()
	for _, name := range list(t, h.TaskDir(h.job.Task)) {
		switch d, _ := parseDirName(name); {
		case d.unfinished:
		case d.stage == ingestStage:
			m.in.File = filepath.Join(name, filepath.Base(m.in.File))
		case d.stage == transcodeStage:
			m.tr.Dir = name
		case d.stage == metadataStage:
			m.md.Dir = name
		case d.stage == assembleStage:
			m.as.Dir = name
		}
	}
	return m
}

// The process died between two renames: the generation has its name, but no manifest
// refers to it.
func TestCleaner_RemovesUnservedGeneration(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	first := h.mustPublish(m)
	public := h.PublishedDir(h.job.Task)
	unserved, halfServed := "gen-0002-aaaaaaaaaa", "gen-0003-aaaaaaaaaa"
	for _, name := range []string{unserved, halfServed} {
		write(t, filepath.Join(public, name, "x"), "x")
	}
	write(t, filepath.Join(public, switchPrefix+"1", media.MasterName), unserved+"/x")
	write(t, filepath.Join(public, switchPrefix+"1", media.ManifestName), unserved+"/x")
	write(t, filepath.Join(public, switchPrefix+"2", media.ManifestName), halfServed+"/x")
	write(t, filepath.Join(public, media.ManifestName), halfServed+"/x")
	if done := h.mustClean(0); done.Removed != 0 {
		t.Errorf("removed %+v although an attempt on another host may use it", done)
	}
	held, err := lockDir(t.Context(), filepath.Join(public, unserved))
	if err != nil {
		t.Fatal(err)
	}
	if done := h.mustClean(-1); done != (CleanResult{}) {
		t.Errorf("removed %+v while an attempt holds its generation", done)
	}
	flock.Unlock(held)
	if done := h.mustClean(-1); done != (CleanResult{Removed: 3, Bytes: int64(1 + 3*len(unserved+"/x"))}) {
		t.Errorf("removed %+v", done)
	}
	want := []string{filepath.Base(first.Generation), halfServed, media.ManifestName, media.MasterName}
	slices.Sort(want)
	if names := list(t, public); !slices.Equal(names, want) {
		t.Errorf("files: %q; want %q", names, want)
	}
}

func TestCleaner_KeepsPlayableGenerations(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	first, second, third := h.mustPublish(m), h.mustPublish(m), h.mustPublish(m)
	day := 24 * time.Hour
	for _, c := range []struct {
		age  time.Duration
		stay bool
	}{
		// A difference of an hour may come from the clock.
		{0, true}, {day - time.Minute, true}, {day + 59*time.Minute, true}, {-30 * time.Minute, true},
		{day + 61*time.Minute, false},
	} {
		setAge(t, filepath.Join(h.PublishDir, first.Generation), c.age)
		setAge(t, filepath.Join(h.PublishDir, third.Generation), 100*day)
		h.mustClean(-1)
		if exists(filepath.Join(h.PublishDir, first.Generation)) != c.stay {
			t.Errorf("replaced %v ago: it still exists: %v", c.age, !c.stay)
		}
	}
	for _, p := range []Publish{second, third} {
		if !exists(filepath.Join(h.PublishDir, p.Generation)) {
			t.Errorf("%s is missing", p.Generation)
		}
	}

	// A time far in the future is set to now.
	setAge(t, filepath.Join(h.PublishDir, second.Generation), -1000*day)
	h.mustClean(-1)
	info, err := os.Stat(filepath.Join(h.PublishDir, second.Generation))
	if err != nil || time.Since(info.ModTime()).Abs() > time.Hour {
		t.Errorf("%v, %v", info, err)
	}

	// Without manifests it is unknown which generation is served.
	for _, name := range []string{media.MasterName, media.ManifestName} {
		if err := os.Remove(filepath.Join(h.PublishedDir(h.job.Task), name)); err != nil {
			t.Fatal(err)
		}
	}
	setAge(t, filepath.Join(h.PublishDir, second.Generation), 100*day)
	if done := h.mustClean(-1); done != (CleanResult{}) {
		t.Errorf("removed %+v of a video without manifests", done)
	}
}

func setAge(t *testing.T, path string, age time.Duration) {
	t.Helper()
	at := time.Now().Add(-age)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func TestCleaner_KeepsRunningAttempts(t *testing.T) {
	t.Parallel()
	h, _ := readyHarness(t)
	dir := h.TaskDir(h.job.Task)
	alive, silent, dead := mustWorkdir(t, dir, transcodeStage), mustWorkdir(t, dir, transcodeStage),
		mustWorkdir(t, dir, metadataStage)
	for _, w := range []*workdir{silent, dead} {
		setAge(t, w.path, 1000*time.Hour)
	}
	dead.lock.Close()
	beginning, err := lockDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if done := h.mustClean(-1); done != (CleanResult{}) {
		t.Errorf("removed %+v while another process creates a directory", done)
	}
	beginning.Close()
	if done := h.mustClean(0); done.Removed != 1 || exists(dead.path) || !exists(alive.path) || !exists(silent.path) {
		t.Errorf("removed %+v; files: %q", done, list(t, dir))
	}
}

func TestCleaner_KeepsFilesThatARemoteWorkerIsSending(t *testing.T) {
	t.Parallel()
	a := newAttacker(t)
	claim := a.claimOf(transcodeStage)
	files := NewRemoteFiles(a.Config, a.Result)
	send := func(at int64) error {
		return files.WriteOutput(t.Context(), claim, a.segment, at, 1000, "", bytes.NewReader(make([]byte, 100)))
	}
	if err := send(0); err != nil {
		t.Fatal(err)
	}
	w, err := files.receiving(claim, transcodeStage)
	if err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-4 * time.Hour) // when the directory of the rendition was created
	if err := os.Chtimes(w.path, then, then); err != nil {
		t.Fatal(err)
	}
	if err := send(100); err != nil {
		t.Fatal(err)
	}
	cleaner := Cleaner{Config: a.Config}
	if _, err := cleaner.Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := send(200); err != nil {
		t.Errorf("the next piece: %v", err)
	}
}

func TestCleaner_KeepsPartialDownloadForADay(t *testing.T) {
	t.Parallel()
	h, _ := readyHarness(t)
	dir := h.TaskDir(h.job.Task)
	part, state := filepath.Join(dir, partialDownload), filepath.Join(dir, partialDownload+".json")
	write(t, part, "half")
	write(t, state, "{}")
	setAge(t, part, 26*time.Hour)
	if done := h.mustClean(-1); done != (CleanResult{}) {
		t.Errorf("removed %+v of a recent download", done)
	}
	setAge(t, state, 26*time.Hour)
	f, err := os.Open(part)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := flock.TryLock(f, flock.Exclusive); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if done := h.mustClean(-1); done != (CleanResult{}) {
		t.Errorf("removed %+v of a running download", done)
	}
	f.Close()
	if done := h.mustClean(-1); done != (CleanResult{Removed: 2, Bytes: 6}) || exists(part) || exists(state) {
		t.Errorf("removed %+v", done)
	}
}

func TestCleaner_KeepsUnknownFiles(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	h.KeepOld = -1
	p := h.mustPublish(m)
	elsewhere := t.TempDir()
	write(t, filepath.Join(elsewhere, "transcode-0001-aaaaaaaaaa.tmp", "x"), "x")
	write(t, filepath.Join(elsewhere, "gen-0001-aaaaaaaaaa.tmp", "x"), "x")
	task, public := h.TaskDir(h.job.Task), h.PublishedDir(h.job.Task)
	for _, path := range []string{
		filepath.Join(task, "notes.tmp", "x"), filepath.Join(task, "other-0001-aaaaaaaaaa.tmp", "x"),
		filepath.Join(task, "transcode-1-a.tmp", "x"),
		filepath.Join(task, "transcode-0009-aaaaaaaaaa", "x"), filepath.Join(task, "download.part.bak"),
		filepath.Join(task, "x.tmp"),
		filepath.Join(public, "captions.tmp", "x"), filepath.Join(public, "gen-0009-aaaaaaaaaa", "x"),
		filepath.Join(public, ".htaccess"),
		filepath.Join(h.DataDir, "tasks", "transcode-0001-aaaaaaaaaa.tmp", "x"),
		filepath.Join(h.PublishDir, "gen-0001-aaaaaaaaaa.tmp", "x"),
		filepath.Join(h.DataDir, "tasks", strings.ToUpper(store.ID{15: 0xaa}.String()), "transcode-0001-aaaaaaaaaa.tmp", "x"),
		filepath.Join(h.DataDir, "postgres", "transcode-0001-aaaaaaaaaa.tmp", "x"),
	} {
		write(t, path, "somebody's")
	}
	for link, to := range map[string]string{
		filepath.Join(h.DataDir, "tasks", store.ID{15: 8}.String()): elsewhere,
		filepath.Join(h.PublishDir, store.ID{15: 8}.String()):       elsewhere,
		filepath.Join(task, "transcode-0001-bbbbbbbbbb.tmp"):        elsewhere,
		filepath.Join(public, "gen-0000-bbbbbbbbbb"):                elsewhere,
		filepath.Join(task, partialDownload): filepath.Join(
			elsewhere, "transcode-0001-aaaaaaaaaa.tmp", "x"),
		filepath.Join(task, "metadata-0001-bbbbbbbbbb.tmp", "link", "to"): elsewhere,
	} {
		mkdir(t, filepath.Dir(link))
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range list(t, task) {
		if !strings.HasPrefix(path, partialDownload) {
			setAge(t, filepath.Join(task, path), 1000*time.Hour)
		}
	}
	before := snapshot(t, h.DataDir, h.PublishDir, elsewhere)
	delete(before, filepath.Join(task, "metadata-0001-bbbbbbbbbb.tmp", "link", "to"))
	if done := h.mustClean(-1); done.Removed != 1 {
		t.Errorf("removed %+v", done)
	}
	wantSame(t, before, snapshot(t, h.DataDir, h.PublishDir, elsewhere))
	if !exists(filepath.Join(h.PublishDir, p.Master)) {
		t.Error("the published video is missing")
	}
}

func TestCleaner_RemovesEmptyTaskDirs(t *testing.T) {
	t.Parallel()
	h := Config{DataDir: t.TempDir(), PublishDir: t.TempDir()}
	killed, old, fresh := store.ID{15: 1}, store.ID{15: 2}, store.ID{15: 3}
	write(t, filepath.Join(h.TaskDir(killed), "ingest-0001-aaaaaaaaaa.tmp", "x"), "x")
	for _, id := range []store.ID{old, fresh} {
		mkdir(t, h.TaskDir(id))
		mkdir(t, h.PublishedDir(id))
	}
	setAge(t, h.TaskDir(old), 1000*time.Hour)
	setAge(t, h.PublishedDir(old), 1000*time.Hour)
	cleaner := Cleaner{Config: h, MinIdle: -1}
	if done, err := cleaner.Clean(t.Context()); done != (CleanResult{Removed: 4, Bytes: 1}) || err != nil {
		t.Errorf("removed %+v, %v", done, err)
	}
	a, b := list(t, filepath.Join(h.DataDir, "tasks")), list(t, h.PublishDir)
	if len(a) != 1 || len(b) != 1 || a[0] != fresh.String() {
		t.Errorf("files: %q and %q", a, b)
	}
}

func TestCleaner_ContinuesAfterCancellation(t *testing.T) {
	t.Parallel()
	c := Config{DataDir: t.TempDir(), PublishDir: t.TempDir()}
	for i := range 5 {
		write(t, filepath.Join(c.TaskDir(store.ID{15: byte(i)}), "ingest-0001-aaaaaaaaaa.tmp", "x"), "x")
	}
	cleaner := Cleaner{Config: c, MinIdle: -1, lastTask: store.ID{15: 2}.String()}
	if done, err := cleaner.Clean(t.Context()); done.Bytes != 2 || err != nil || cleaner.lastTask != "" {
		t.Errorf("removed %+v, %v, and continues after %q", done, err, cleaner.lastTask)
	}
	if names := list(t, filepath.Join(c.DataDir, "tasks")); len(names) != 3 {
		t.Errorf("files: %q", names)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if done, err := cleaner.Clean(ctx); done != (CleanResult{}) || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: removed %+v, %v", done, err)
	}
}

func TestCleaner_NamesMissingDisk(t *testing.T) {
	t.Parallel()
	c := Config{DataDir: filepath.Join(t.TempDir(), "none"), PublishDir: t.TempDir(), Marker: markerFile}
	cleaner := Cleaner{Config: c}
	_, err := cleaner.Clean(t.Context())
	if err == nil || strings.Count(err.Error(), "is its disk mounted?") != 2 {
		t.Errorf("got %v", err)
	}
}

// Each cleaner and attempt has its own lock owner, like separate hosts.
func TestCleaner_RunsDuringPublish(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	h.KeepOld = -1
	h.mustPublish(m)
	master := filepath.Join(h.PublishedDir(h.job.Task), media.MasterName)
	stop := make(chan struct{})
	var others sync.WaitGroup
	for range 2 {
		others.Go(func() {
			cleaner := Cleaner{Config: h.Config, MinIdle: -1}
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := cleaner.Clean(t.Context()); err != nil {
					t.Error(err)
				}
				wantCompleteGeneration(t, master)
			}
		})
	}
	var publishing sync.WaitGroup
	for range 2 {
		publishing.Go(func() {
			for range 15 {
				if _, err := h.tryPublish(m); err != nil && !strings.Contains(err.Error(), "overtaken") {
					t.Error(err)
				}
				if _, err := h.assemble(t.Context(), h.job, m.in, m.tr, m.md); err != nil {
					t.Error(err)
				}
			}
		})
	}
	publishing.Wait()
	close(stop)
	others.Wait()
	h.mustClean(-1)
	if names := list(t, h.PublishedDir(h.job.Task)); len(names) != 3 {
		t.Errorf("files: %q", names)
	}
	wantPlayable(t, master, m.tr.Output.Video)
}

// wantCompleteGeneration requires the playlists that a master playlist names. Without
// KeepOld, a generation may be replaced and removed after it was read.
func wantCompleteGeneration(t *testing.T, master string) {
	t.Helper()
	text := read(t, master)
	for line := range strings.Lines(text) {
		if line[0] == '#' || exists(filepath.Join(filepath.Dir(master), strings.TrimSpace(line))) {
			continue
		}
		if read(t, master) == text {
			t.Errorf("a referenced playlist is missing: %s", line)
		}
		return
	}
}
