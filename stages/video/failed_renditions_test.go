package video

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// brokenTools have an ffmpeg that fails to make these renditions.
func brokenTools(t *testing.T, renditions ...string) Tools {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ffmpeg")
	var script strings.Builder
	script.WriteString("#!/bin/sh\ncase \"$*\" in\n")
	for _, name := range renditions {
		fmt.Fprintf(&script, "*%s/seg-*) echo '%s: out of luck' >&2; exit 1;;\n", name, name)
	}
	script.WriteString("esac\nexec ffmpeg \"$@\"\n")
	if err := os.WriteFile(file, []byte(script.String()), 0o755); err != nil {
		t.Fatal(err)
	}
	tools := testTools
	tools.FFmpeg = file
	return tools
}

// workOnce starts workers, one of them remote if that is so, whose transcodes have one attempt.
func (s *remoteSite) workOnce(tools Tools, isRemote bool) {
	s.t.Helper()
	once := func(list []stages.Stage) { list[1].MaxAttempts = 1 }
	s.files.MaxAttempts = 1
	if isRemote {
		s.workLocally(RemoteStageNames()...)
		s.workRemotelyOver(remote.NewTransport(), s.url, "key-1", tools, once)
		return
	}
	c := s.Config
	c.Tools = tools
	list := Stages(c)
	once(list)
	s.run(stages.Runner{Pool: s.pool, Pipeline: pipelineOf(s.t, list)})
}

func TestTranscode_SkipsARenditionThatCannotBeMade(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		length   time.Duration
		isRemote bool
	}{
		"whole": {-1, false}, "chunks, remote": {6 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newRemoteSite(t)
			s.ChunkLength = c.length
			s.workOnce(brokenTools(t, "360p"), c.isRemote)
			task := s.submitWith(wideFilm(t), `{"failed_rendition": "skip"}`)
			tr, p := s.waitPublished(task)
			if len(tr.Failed) != 1 || tr.Failed[0].Name != "360p" || len(tr.Output.Video) != 1 || len(tr.Output.Audio) != 1 {
				t.Errorf("the result is %+v", tr)
			}
			wantPlayable(t, filepath.Join(s.PublishDir, p.Master), slices.Concat(tr.Output.Video, tr.Output.Audio))
			const want = "the rendition 360p is missing, because it could not be made: "
			if len(tr.Warnings) != 1 || !strings.HasPrefix(tr.Warnings[0], want) || !strings.Contains(tr.Warnings[0], "out of luck") {
				t.Errorf("the warnings are %q", tr.Warnings)
			}
			if text := read(t, filepath.Join(s.PublishDir, p.Metadata)); !strings.Contains(text, want) {
				t.Errorf("metadata.json has no warning: %s", text)
			}
			if c.isRemote {
				return
			}
			if err := s.retryRenditions(task, 240); err != nil {
				t.Fatal(err)
			}
			if tr, _ := s.waitPublished(task); len(tr.Warnings) != 1 || !strings.HasPrefix(tr.Warnings[0], want) {
				t.Errorf("after a retry of the other rendition the warnings are %q", tr.Warnings)
			}
		})
	}
}

func TestTranscode_FailsIfARenditionCannotBeMade(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		params string
		broken []string
	}{
		"it shall wait": {"{}", []string{"360p"}},
		"all fail":      {`{"failed_rendition": "skip"}`, []string{"360p", "240p"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newRemoteSite(t)
			s.ChunkLength = 6 * time.Second
			s.workOnce(brokenTools(t, c.broken...), false)
			task := s.submitWith(wideFilm(t), c.params)
			waittest.Equal(t, "the status", store.StatusDead, func() store.Status {
				got, err := s.Get(t.Context(), task)
				if err != nil {
					t.Fatal(err)
				}
				return got.Status
			})
		})
	}
}

func TestRemoteFiles_LetOnlyTheLastAttemptSkipARendition(t *testing.T) {
	t.Parallel()
	info, err := testTools.Probe(t.Context(), wideFilm(t))
	if err != nil {
		t.Fatal(err)
	}
	in := Ingest{Info: info, Settings: Settings{FailedRendition: failedIsSkipped}}
	files := NewRemoteFiles(Config{DataDir: t.TempDir()}, func(context.Context, store.ID, string) (json.RawMessage, error) {
		return json.Marshal(in)
	})
	stage, _ := store.Video().Stage(transcodeStage)
	for attempt, want := range map[int]int{1: 0, 2: 0, 3: 1, 4: 1} {
		d, err := files.delivery(t.Context(), engine.Claim{Stage: stage, Part: 1, Spec: wholeSpec, Attempt: attempt})
		if err != nil {
			t.Fatal(err)
		}
		if failed := d.skippedRenditions([]FailedRendition{{Name: d.rungs[0].Name}}); len(failed) != want {
			t.Errorf("attempt %d skips %v", attempt, failed)
		}
	}
}
