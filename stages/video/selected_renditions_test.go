package video

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
)

// wideFilm is a film with the renditions 360p and 240p.
func wideFilm(t *testing.T) string { return filmOfSize(t, "640x360") }

// retryRenditions retries a task so that only renditions of these heights are made again.
func (s *remoteSite) retryRenditions(task store.ID, heights ...int) error {
	s.t.Helper()
	ctx := s.t.Context()
	before, err1 := s.Get(ctx, task)
	ingest, err2 := s.Result(ctx, task, ingestStage)
	transcode, err3 := s.Result(ctx, task, transcodeStage)
	if err := errors.Join(err1, err2, err3); err != nil {
		s.t.Fatal(err)
	}
	params, err := SelectRenditions(before.Params, ingest, transcode, heights)
	if err != nil {
		return err
	}
	return errors.Join(s.SetParams(ctx, task, params), s.RetryFresh(ctx, task, transcodeStage))
}

// segments are the first segments of the published renditions, by the names of these.
func (s *remoteSite) segments(p Publish, renditions ...string) (content []string) {
	s.t.Helper()
	for _, name := range renditions {
		content = append(content, read(s.t, filepath.Join(s.PublishDir, p.Generation, name, "seg-00001.m4s")))
	}
	return content
}

func TestRetry_MakesOnlySelectedRenditionsAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		length   time.Duration
		isRemote bool // with the results in a bucket
		parts    int
	}{
		"chunks":                {6 * time.Second, false, 4},
		"whole, remote, bucket": {-1, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newWorkingSite(t, c.length, c.isRemote)
			task := s.submitWith(wideFilm(t), `{"quality": 30, "preset": "ultrafast"}`)
			first, before := s.waitPublished(task)
			kept := s.segments(before, "360p", "audio")
			attempts := len(s.outcomes(task))
			if err := s.retryRenditions(task, 240); err != nil {
				t.Fatal(err)
			}
			tr, after := s.waitPublished(task)
			if !slices.Equal(tr.Kept, []string{"360p", "audio"}) || tr.Dir == first.Dir || len(tr.Rungs) != 3 {
				t.Errorf("the result is %+v", tr)
			}
			if tr.Output.Duration != first.Output.Duration || tr.Output.Expected != first.Output.Expected {
				t.Errorf("the output is %+v instead of %+v", tr.Output, first.Output)
			}
			if before.Generation == after.Generation || !slices.Equal(kept, s.segments(after, "360p", "audio")) {
				t.Error("kept renditions have changed, or were not published again")
			}
			wantPlayable(t, filepath.Join(s.PublishDir, after.Master), slices.Concat(tr.Output.Video, tr.Output.Audio))
			if got := s.outcomes(task)[attempts:]; len(got) != c.parts+2 {
				t.Errorf("the attempts of the retry are %q", got)
			}
		})
	}
}

func TestRetry_AddsARenditionThatTheVideoLacks(t *testing.T) {
	t.Parallel()
	s := newRemoteSite(t)
	s.workLocally()
	task := s.submitWith(wideFilm(t), `{"renditions": [240]}`)
	if tr, _ := s.waitPublished(task); len(tr.Output.Video) != 1 {
		t.Fatalf("the first result is %+v", tr.Output.Video)
	}
	if err := s.retryRenditions(task, 360); err != nil {
		t.Fatal(err)
	}
	tr, p := s.waitPublished(task)
	if len(tr.Output.Video) != 2 || tr.Output.Video[0].Name != "360p" || !slices.Equal(tr.Kept, []string{"240p", "audio"}) {
		t.Errorf("the result is %+v", tr)
	}
	wantPlayable(t, filepath.Join(s.PublishDir, p.Master), slices.Concat(tr.Output.Video, tr.Output.Audio))

	// A retry without a selection makes all that the settings say.
	if err := s.RetryFresh(t.Context(), task, transcodeStage); err != nil {
		t.Fatal(err)
	}
	if tr, _ := s.waitPublished(task); len(tr.Output.Video) != 1 || len(tr.Kept) > 0 {
		t.Errorf("the last result is %+v", tr)
	}
}

func TestRetry_MakesAllRenditionsIfThoseToKeepAreLost(t *testing.T) {
	t.Parallel()
	s := newRemoteSite(t)
	s.workLocally()
	task := s.submit(wideFilm(t))
	first, _ := s.waitPublished(task)
	if err := os.RemoveAll(filepath.Join(s.TaskDir(task), first.Dir, "360p")); err != nil {
		t.Fatal(err)
	}
	if err := s.retryRenditions(task, 240); err != nil {
		t.Fatal(err)
	}
	tr, p := s.waitPublished(task)
	if len(tr.Output.Video) != 2 || len(tr.Output.Audio) != 1 || len(tr.Kept) > 0 {
		t.Errorf("the result is %+v", tr)
	}
	wantPlayable(t, filepath.Join(s.PublishDir, p.Master), slices.Concat(tr.Output.Video, tr.Output.Audio))
}

func TestSelectRenditions_RefusesWhatTheSourceIsTooSmallFor(t *testing.T) {
	t.Parallel()
	_, made := readyHarness(t)
	ingest, err1 := json.Marshal(made.in)
	transcode, err2 := json.Marshal(made.tr)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	_, err := SelectRenditions(nil, ingest, transcode, []int{1080})
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "1080p cannot be made of this source; possible: ") {
		t.Errorf("the error is %v", err)
	}
}
