package video

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cuelight/cuelight/stages"
)

// mountsVariable tells a test that it runs in its own process and mount namespace, so
// it may mount disks.
const mountsVariable = "CUELIGHT_TEST_MOUNTS"

func TestStages_SurviveDiskFailures(t *testing.T) {
	t.Parallel()
	if os.Getenv(mountsVariable) != "" {
		t.Skip("this is the child process")
	}
	if clips.picture == "" || testing.Short() {
		t.Skip("there is no ffmpeg here, or no time")
	}
	out, err := exec.Command("unshare", "--mount", "mount", "-t", "tmpfs", "none", t.TempDir()).CombinedOutput()
	if err != nil {
		t.Skipf("this account may not mount: %v: %s", err, out)
	}
	child := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private",
		os.Args[0], "-test.run", "^TestStages_HelperRunsOnAMountedDisk$", "-test.parallel", "8") // most of them wait
	child.Env = append(os.Environ(), mountsVariable+"=1")
	if out, err := child.CombinedOutput(); err != nil || strings.Contains(string(out), "no tests to run") {
		t.Errorf("%v\n%s", err, out)
	}
}

// phases are the steps of each stage during which a failure is injected.
var phases = []struct{ stage, note string }{
	{ingestStage, "fetching"}, {ingestStage, "probing"}, {ingestStage, "syncing"},
	{transcodeStage, "transcoding"}, {transcodeStage, "checking"}, {transcodeStage, "syncing"},
	{metadataStage, "poster"}, {metadataStage, "syncing"},
	{assembleStage, "linking"}, {assembleStage, "checking"}, {assembleStage, "manifest"}, {assembleStage, "syncing"},
	{publishStage, "publishing"}, {publishStage, "checking"}, {publishStage, "syncing"}, {publishStage, "switching"},
}

// diskFailure is a failure of a disk, and how to repair it.
type diskFailure struct {
	message    string
	begin, end func(d *testDisk) error
	early      bool     // not possible while a file is open for writing
	tolerated  []string // steps after which a stage may still complete
}

var diskFailures = map[string]diskFailure{
	"full": {
		message: "is full", begin: (*testDisk).fill, end: (*testDisk).makeRoom,
		// Nothing more is written, or only links.
		tolerated: []string{"probing", "checking", "syncing", "linking", "manifest"},
	},
	"gone":      {message: "is its disk mounted?", begin: (*testDisk).hide, end: (*testDisk).bringBack},
	"unmounted": {message: "is its disk mounted?", begin: (*testDisk).unmount, end: (*testDisk).mount},
	"read-only": {message: "is read-only", begin: (*testDisk).forbid, end: (*testDisk).permit, early: true},
}

func TestStages_HelperRunsOnAMountedDisk(t *testing.T) {
	if os.Getenv(mountsVariable) == "" {
		t.Skip("TestStages_SurviveDiskFailures runs this")
	}
	for name, failure := range diskFailures {
		for _, m := range phases {
			if failure.early && m.note == "fetching" {
				continue
			}
			t.Run(name+"/"+m.stage+"/"+m.note, func(t *testing.T) {
				t.Parallel()
				runWithFailure(t, failure, m.stage, m.note)
			})
		}
	}
	t.Run("manifest that cannot be replaced", func(t *testing.T) {
		t.Parallel()
		h, m, _, _ := onDisks(t)
		master := filepath.Join(h.PublishDir, h.mustPublish(m).Master)
		before := snapshot(t, h.PublishDir)
		if err := unix.Mount(master, master, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		_, err := h.tryPublish(m)
		wantRetry(t, "a file that others hold", err)
		if err := unix.Unmount(master, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
		wantSame(t, before, snapshot(t, h.PublishDir))
		h.mustPublish(m)
	})
}

// runWithFailure injects a failure during a stage, and repairs it.
func runWithFailure(t *testing.T, failure diskFailure, stage, note string) {
	h, m, data, public := onDisks(t)
	d := data
	if stage == publishStage {
		d = public
	}
	h.mustPublish(m)
	before := snapshot(t, h.DataDir, h.PublishDir)

	happened := h.onNote(note, failure.early, func() {
		if err := failure.begin(d); err != nil {
			t.Error(err)
		}
	})
	err := h.run(t.Context(), stage, m)
	h.job.OnProgress = nil
	if !happened() {
		t.Fatalf("the stage did not reach %s: %v", note, err)
	}
	if err := failure.end(d); err != nil {
		t.Fatal(err)
	}
	if err == nil && !slices.Contains(failure.tolerated, note) {
		t.Error("the stage was completed")
	}
	if err != nil {
		wantDiskError(t, err, failure.message)
		for path, was := range before {
			if is, ok := snapshot(t, h.DataDir, h.PublishDir)[path]; !ok || is != was {
				t.Errorf("%s was %s before, and %s after", path, was, is)
			}
		}
		wantNothingNew(t, before, snapshot(t, h.DataDir, h.PublishDir))
	}
	if err := h.run(t.Context(), stage, m); err != nil {
		t.Errorf("after the repair: %v", err)
	}
	h.mustClean(-1)
	for path := range snapshot(t, h.DataDir, h.PublishDir) {
		if isLeftover(path) {
			t.Errorf("%s was left behind", path)
		}
	}
}

// wantDiskError requires an error that says what to repair, and a retry delay.
func wantDiskError(t *testing.T, err error, says string) {
	t.Helper()
	pause, ok := stages.RetryDelay(err)
	if stages.IsPermanent(err) || !ok || pause != hostRetryDelay || !strings.Contains(err.Error(), says) {
		t.Errorf("error %v, retry in %v; want %q", err, pause, says)
	}
}

// wantNothingNew requires that all new files have names of unfinished ones.
func wantNothingNew(t *testing.T, before, after map[string]string) {
	t.Helper()
	for path := range after {
		if _, was := before[path]; !was && !isLeftover(path) {
			t.Errorf("%s exists although no stage was completed", path)
		}
	}
}

// isLeftover reports whether a path, or a directory in it, has the name of an
// unfinished one.
func isLeftover(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(name string) bool {
		return strings.HasSuffix(name, ".tmp") || strings.HasPrefix(name, switchPrefix) ||
			strings.HasPrefix(name, partialDownload)
	})
}

// testDisk is a small disk.
type testDisk struct {
	real string // mounted directory
	at   string // mount point
	used string // the used directory on it
}

// onDisks returns a harness whose directories are on two small disks, with all results
// before publish.
func onDisks(t *testing.T) (*harness, allResults, *testDisk, *testDisk) {
	t.Helper()
	h, m := readyHarness(t)
	var disks [2]*testDisk
	for i, dir := range []*string{&h.DataDir, &h.PublishDir} {
		d := &testDisk{real: t.TempDir(), at: t.TempDir()}
		d.used = filepath.Join(d.at, "used")
		if err := unix.Mount("none", d.real, "tmpfs", 0, "size=16m"); err != nil {
			t.Fatal(err)
		}
		mkdir(t, filepath.Join(d.real, "used"))
		write(t, filepath.Join(d.real, "used", markerFile), "")
		if err := d.mount(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Unmount(d.at, unix.MNT_DETACH); unix.Unmount(d.real, unix.MNT_DETACH) })
		if i == 0 {
			var l linker
			if err := l.add(t.Context(), *dir, d.used, servedMode); err != nil {
				t.Fatal(err)
			}
		}
		*dir, disks[i] = d.used, d
	}
	h.Reserve, h.Marker = -1, markerFile
	// Large enough to inject a failure while it is copied.
	large := read(t, h.job.Source) + "\x00\x40\x00\x00free" + strings.Repeat("x", 4<<20-8)
	h.job.Source = filepath.Join(t.TempDir(), "large.mp4")
	write(t, h.job.Source, large)
	// Slow enough to inject a failure.
	h.Tools.FFmpeg = filepath.Join(t.TempDir(), "ffmpeg")
	write(t, h.Tools.FFmpeg,
		"#!/bin/sh\nfor a; do [ \"$a\" = shown.tap ] || [ \"$a\" = file:shown.tap ] && exec ffmpeg -re \"$@\"; done\n"+
			"exec ffmpeg \"$@\"\n")
	if err := os.Chmod(h.Tools.FFmpeg, 0o755); err != nil {
		t.Fatal(err)
	}
	return h, m, disks[0], disks[1]
}

func (d *testDisk) mount() error   { return unix.Mount(d.real, d.at, "", unix.MS_BIND, "") }
func (d *testDisk) unmount() error { return unix.Unmount(d.at, unix.MNT_DETACH) }

func (d *testDisk) hide() error      { return os.Rename(d.used, d.used+".away") }
func (d *testDisk) bringBack() error { return os.Rename(d.used+".away", d.used) }

// forbid retries while the disk is busy: until a forked process has executed its
// program, it keeps every file of this process open, also after they were written.
func (d *testDisk) forbid() (err error) {
	for range 100 {
		syscall.ForkLock.RLock()
		err = unix.Mount("", d.at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
		syscall.ForkLock.RUnlock()
		if !errors.Is(err, syscall.EBUSY) {
			return err
		}
		time.Sleep(10 * time.Millisecond) // another test's child may have a file open for writing
	}
	return err
}

func (d *testDisk) permit() error { return unix.Mount("", d.at, "", unix.MS_REMOUNT|unix.MS_BIND, "") }

func (d *testDisk) fill() error {
	f, err := os.Create(filepath.Join(d.at, "filler"))
	if err != nil {
		return err
	}
	defer f.Close()
	for page := make([]byte, 4096); ; {
		if _, err := f.Write(page); errors.Is(err, syscall.ENOSPC) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// makeRoom truncates the file first, because a forked process may still have it open.
func (d *testDisk) makeRoom() error {
	filler := filepath.Join(d.at, "filler")
	return errors.Join(os.Truncate(filler, 0), os.Remove(filler))
}
