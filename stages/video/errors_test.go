package video

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/internal/fetch"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

func TestClassify_SeparatesPermanentErrors(t *testing.T) {
	t.Parallel()
	path := func(errno error) error { return &fs.PathError{Op: "open", Path: "/x", Err: errno} }
	for name, c := range map[string]struct {
		err       error
		permanent bool
		want      string
	}{
		"refused source": {fmt.Errorf("probe: %w", &media.RejectedError{Reason: "encrypted"}), true, "probe: encrypted"},
		"missing source": {&fetch.Error{Source: `"/x"`, Permanent: true, Err: errors.New("none")}, true, "none"},
		"overloaded server": {
			&fetch.Error{Source: `"http://x"`, RetryAfter: time.Minute, Err: errors.New("503")}, false, "503",
		},
		"broken connection":         {&fetch.Error{Source: `"http://x"`, Err: syscall.ECONNRESET}, false, "reset"},
		"unreadable source":         {&fetch.Error{Source: `"/x"`, Err: path(syscall.EACCES)}, false, "fetch"},
		"full disk in ffmpeg":       {fmt.Errorf("run ffmpeg: %w", media.ErrNoSpace), false, "the disk is full: run ffmpeg"},
		"full disk":                 {path(syscall.ENOSPC), false, "the disk is full"},
		"full disk, before writing": {&diskspace.FullError{Need: 50, Size: 100, Free: 10}, false, "not enough disk space"},
		"too small a disk":          {&diskspace.FullError{Need: 101, Size: 100, Free: 10}, true, "use a larger disk"},
		"too large a reserve":       {&diskspace.FullError{Need: 101, Size: 100, Free: 10, Reserve: 100}, false, "not enough disk space"},
		"quota":                     {path(syscall.EDQUOT), false, "the disk is full"},
		"read-only disk":            {path(syscall.EROFS), false, "the disk is read-only"},
		"missing permission":        {path(syscall.EACCES), false, "may not"},
		"failing disk":              {path(syscall.EIO), false, "this host has a fault"},
		"no memory":                 {fmt.Errorf("run ffmpeg: %w: x", media.ErrMemory), false, "run ffmpeg: not enough memory"},
		"lost disk": {fmt.Errorf("%w (%v)",
			&missingError{what: "the data directory", path: "/x", err: fs.ErrNotExist},
			&media.RejectedError{Reason: "damaged"}), false, "is its disk mounted?"},
		"missing tool":               {fmt.Errorf("x: %w", media.ErrToolMissing), false, "brew install ffmpeg"},
		"stalled ffmpeg":             {media.ErrStalled, false, "no progress"},
		"incomplete output":          {media.ErrMismatch, false, "does not match"},
		"unknown error":              {errors.New("odd"), false, "odd"},
		"permanent error of a stage": {stages.Permanent(media.ErrMismatch), true, "does not match"},
	} {
		got := classify(t.Context(), c.err, 1)
		if stages.IsPermanent(got) != c.permanent || !strings.Contains(got.Error(), c.want) || !errors.Is(got, c.err) {
			t.Errorf("%s: got %v, permanent %v", name, got, stages.IsPermanent(got))
		}
	}
}

// An error that affects every task of this host does not count as an attempt. An error
// that the task may have caused does.
func TestClassify_PostponesHostErrors(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		syscall.ENOSPC, syscall.EROFS, syscall.EMFILE, &missingError{}, media.ErrToolMissing, media.ErrNoSpace,
		media.ErrStarved,
	} {
		got := classify(t.Context(), err, 1)
		if pause, ok := stages.RetryDelay(got); !ok || pause != 5*time.Minute || !stages.IsPostponed(got) {
			t.Errorf("%v: %s, %t", err, pause, stages.IsPostponed(got))
		}
	}
	for attempt, want := range map[int]time.Duration{1: 5 * time.Minute, 2: time.Hour, 7: time.Hour} {
		for _, err := range []error{media.ErrMemory, fs.ErrPermission, syscall.EIO, syscall.ENOMEM} {
			got := classify(t.Context(), err, attempt)
			if pause, ok := stages.RetryDelay(got); !ok || pause != want || stages.IsPostponed(got) {
				t.Errorf("attempt %d, %v: %s, %t", attempt, err, pause, stages.IsPostponed(got))
			}
		}
	}
}

// A large source that does not fit does not stop small ones.
func TestClassify_OneTaskErrorSuspendsNoStage(t *testing.T) {
	t.Parallel()
	closed := fmt.Errorf("%w: %w: %w", media.ErrSandbox, media.ErrSourceNotReadable, fs.ErrPermission)
	for name, c := range map[string]struct {
		err      error
		suspends bool
	}{
		"too large an estimate":     {&diskspace.FullError{Need: 200, Size: 1000, Free: 100, Reserve: 10}, false},
		"less than the reserve":     {&diskspace.FullError{Need: 1, Size: 1000, Free: 9, Reserve: 10}, true},
		"full disk":                 {syscall.ENOSPC, true},
		"read-only disk":            {syscall.EROFS, true},
		"task's directory":          {fmt.Errorf("x: %w", &missingError{oneTask: true}), false},
		"data directory":            {&missingError{}, true},
		"source closed to others":   {fmt.Errorf("start ffprobe: %w", closed), false},
		"no confinement":            {media.ErrSandbox, true},
		"no ffmpeg":                 {media.ErrToolMissing, true},
		"no processor time":         {media.ErrStarved, true},
		"full disk found by ffmpeg": {media.ErrNoSpace, true},
	} {
		got := classify(t.Context(), c.err, 1)
		if !stages.IsPostponed(got) || stages.SuspendsStage(got) != c.suspends {
			t.Errorf("%s: %v: postponed %t, suspends %t", name, got, stages.IsPostponed(got), stages.SuspendsStage(got))
		}
	}
}

func TestFindTaskDir_MissingDirConcernsOneTask(t *testing.T) {
	t.Parallel()
	c := Config{DataDir: t.TempDir()}
	for _, own := range []bool{false, true} {
		_, err := c.findTaskDir(store.ID{1})
		if gone, ok := errors.AsType[*missingError](err); !ok || gone.oneTask != own {
			t.Errorf("%v: concerns one task: %t", err, !own)
		}
		if _, err := c.makeTaskDir(store.ID{2}); err != nil {
			t.Fatal(err)
		}
	}
}

// A copy or download that needs more than is free differs from a full disk.
func TestIngest_TooLargeSourceSuspendsNoStage(t *testing.T) {
	t.Parallel()
	h := newHarness(t, filepath.Join(otherFileSystem(t), "large.mp4"))
	free, size, err := diskspace.Free(h.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	large, reserve := free/2, free*3/4
	if large > size-reserve || large > 1<<40 {
		t.Skip("this disk has the wrong size for a test")
	}
	if err := errors.Join(os.WriteFile(h.job.Source, []byte("x"), 0o644), os.Truncate(h.job.Source, large)); err != nil {
		t.Skip(err)
	}
	for reserve, suspends := range map[int64]bool{reserve: false, free + free/16: true} {
		h.Reserve = reserve
		_, err := h.ingest(t.Context(), h.job)
		if got := classify(t.Context(), err, 1); !stages.IsPostponed(got) || stages.SuspendsStage(got) != suspends {
			t.Errorf("%d bytes free, reserve %d: %v: postponed %t, suspends %t", free, reserve, got,
				stages.IsPostponed(got), stages.SuspendsStage(got))
		}
	}
}

func TestClassify_RetriesMismatchOnce(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("check output: %w: it ends 5.0 s before the source", media.ErrMismatch)
	for attempt, want := range map[int]bool{1: false, 2: true, 3: true} {
		if got := classify(t.Context(), err, attempt); stages.IsPermanent(got) != want {
			t.Errorf("attempt %d: permanent %t", attempt, !want)
		}
	}
	full := fmt.Errorf("%w: %w", media.ErrMismatch, media.ErrNoSpace)
	if got := classify(t.Context(), full, 2); stages.IsPermanent(got) {
		t.Errorf("a full disk: %v", got)
	}
}

func TestClassify_ReturnsCauseOfCancellation(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stages.ErrDraining)
	for _, err := range []error{errors.New("signal: killed"), &media.RejectedError{Reason: "no frames"}} {
		if got := classify(ctx, err, 1); got != stages.ErrDraining {
			t.Errorf("got %v", got)
		}
	}
}
