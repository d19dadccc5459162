package video

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cuelight/cuelight/stages"
)

// markerFile is the Config.Marker of both directories.
const markerFile = ".marker"

// snapshot lists all files with sizes and inode numbers.
func snapshot(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			info, err := e.Info()
			if err == nil {
				all[path] = fmt.Sprintf("%d bytes, inode %d", info.Size(), info.Sys().(*syscall.Stat_t).Ino)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	return all
}

// run runs one stage as the engine does, with the earlier results in m.
func (h *harness) run(ctx context.Context, stage string, m allResults) error {
	h.job.Results = results(m)
	i := slices.IndexFunc(Stages(h.Config), func(s stages.Stage) bool { return s.Name == stage })
	_, err := do(ctx, Stages(h.Config)[i], h.job)
	return err
}

// results returns the function with which a job reads earlier results.
func results(m allResults) func(ctx context.Context, stage string) (json.RawMessage, error) {
	return func(_ context.Context, stage string) (json.RawMessage, error) {
		return json.Marshal(map[string]any{
			ingestStage: m.in, transcodeStage: m.tr, metadataStage: m.md, assembleStage: m.as,
		}[stage])
	}
}

// onNote calls do once, when the job reports a step with that note.
func (h *harness) onNote(note string, atOnce bool, do func()) (happened func() bool) {
	var once sync.Once
	done := false
	h.job.OnProgress = func(p stages.Progress) {
		if strings.HasPrefix(p.Note, note) && (atOnce || note != "transcoding" || p.Percent > 0) {
			once.Do(func() { done = true; do() })
		}
	}
	return func() bool { return done }
}

func (h *harness) mustClean(quiet time.Duration) CleanResult {
	h.t.Helper()
	tidier := Cleaner{Config: h.Config, MinIdle: quiet}
	done, err := tidier.Clean(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return done
}

func wantSame(t *testing.T, before, after map[string]string) {
	t.Helper()
	for path, was := range before {
		if after[path] != was {
			t.Errorf("%s was %s before, and %q after", path, was, after[path])
		}
	}
	for path := range after {
		if before[path] == "" {
			t.Errorf("%s was left behind", path)
		}
	}
}
