package video

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/media"
)

func TestTranscode_PublishesASmallRenditionEarly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		length   time.Duration
		isRemote bool // with the results in a bucket
		parts    [2]int
		size     string
		kept     string
		video    int
	}{
		"chunks":                      {6 * time.Second, false, [2]int{5, 4}, "854x480", "360p", 3},
		"whole, remote, bucket":       {-1, true, [2]int{1, 1}, "854x480", "360p", 3},
		"whole, of a small rendition": {-1, false, [2]int{1, 1}, "640x360", "240p", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newWorkingSite(t, c.length, c.isRemote)
			task := s.submitWith(filmOfSize(t, c.size), `{"watch_early": true}`)
			tr, p := s.waitPublished(task)
			wantPlayable(t, filepath.Join(s.PublishDir, p.Master), slices.Concat(tr.Output.Video, tr.Output.Audio))
			if !slices.Equal(tr.Kept, []string{c.kept, "audio"}) || len(tr.Output.Video) != c.video || len(tr.Rungs) != c.video+1 {
				t.Errorf("the result is %+v", tr)
			}
			generations, err := filepath.Glob(filepath.Join(s.PublishDir, task.String(), "gen-*"))
			if err != nil || len(generations) != 2 || filepath.Base(generations[1]) != filepath.Base(p.Generation) {
				t.Fatalf("the generations are %q, %v; the last one is %s", generations, err, p.Generation)
			}
			early := slices.DeleteFunc(slices.Concat(tr.Output.Video, tr.Output.Audio), func(r media.Rendition) bool {
				return !slices.Contains(tr.Kept, r.Name)
			})
			wantPlayable(t, filepath.Join(generations[0], media.MasterName), early)
			var want []string
			for _, parts := range c.parts {
				want = append(want, "0 divided")
				for n := range parts {
					want = append(want, fmt.Sprintf("%d completed", n+1))
				}
			}
			if got := s.outcomes(task); !slices.Equal(got, append(want, "0 completed")) {
				t.Errorf("the attempts are %q", got)
			}
			for _, name := range list(t, s.TaskDir(task)) {
				if strings.HasPrefix(name, chunkPrefix) {
					t.Errorf("%s has stayed", name)
				}
			}

			// A later transcode replaces a published video as a whole.
			if c.isRemote {
				return
			}
			if err := s.RetryFresh(t.Context(), task, transcodeStage); err != nil {
				t.Fatal(err)
			}
			if tr, _ := s.waitPublished(task); len(tr.Kept) > 0 || len(tr.Output.Video) != c.video {
				t.Errorf("the second result is %+v", tr)
			}
		})
	}
}
