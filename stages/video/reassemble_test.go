package video

import (
	"context"
	"encoding/json"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/store"
)

// The results of transcode and metadata are gone, as with Config.KeepSourceCopies.
func TestAssemble_AddsCaptionsToAVideoOfWhichOnlyThePublishedFilesAreLeft(t *testing.T) {
	t.Parallel()
	for name, layout := range map[string]struct{ data, public bool }{
		"in directories": {}, "in buckets": {true, true}, "results in a bucket": {data: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newBucketHosts(t)
			h.job.Source, h.job.Params = filmWithCaptions(t), []byte(`{"mp4": "max", "preview": "50%"}`)
			c := Config{DataDir: t.TempDir(), PublishDir: t.TempDir(), Tools: testTools}
			if layout.data {
				c.Bucket = h.bucket("data")
			}
			if layout.public {
				c.PublishBucket = h.bucket("public")
			}
			attached := "fr"
			c.Captions = func(context.Context, store.ID) ([]AttachedCaptions, error) {
				all := []AttachedCaptions{{Language: attached, WebVTT: []byte("WEBVTT\n\n00:01.000 --> 00:02.000\nBonjour\n")}}
				if attached == "it" {
					all = append(all, AttachedCaptions{Chapters: true, Language: "it", WebVTT: []byte("WEBVTT\n\n00:00.000 --> 90:00:00.000\nIl mare\n")})
				}
				return all, nil
			}
			for _, stage := range []string{ingestStage, transcodeStage, metadataStage, assembleStage, publishStage} {
				if err := h.run(Stages(c), stage); err != nil {
					t.Fatalf("%s: %v", stage, err)
				}
			}
			for _, attached = range []string{"it", "es"} {
				removeSourceCopies(t, c)
				left, err := c.DataLocation().finished(t.Context(), path.Join(tasksName, h.job.Task.String()))
				if err != nil || len(left) > 0 {
					t.Fatalf("the cleanup left %v, %v", left, err)
				}
				again := c
				if c.Bucket != nil { // on another host
					again.DataDir, again.Bucket = t.TempDir(), h.bucket("data")
				}
				for _, stage := range []string{assembleStage, publishStage} {
					if err := h.run(Stages(again), stage); err != nil {
						t.Fatalf("%s: %v", stage, err)
					}
				}
				var as Assemble
				if err := json.Unmarshal(h.results[assembleStage], &as); err != nil {
					t.Fatal(err)
				}
				got := make([]string, len(as.Chapters))
				for i, c := range as.Chapters {
					got[i] = c.Title
				}
				// Attached chapters replace those of the source until they are removed.
				want := map[string][]string{"it": {"Il mare"}, "es": {"The coast", "The fjord"}}[attached]
				if !slices.Equal(got, want) || as.Chapters[len(got)-1].End > 4 {
					t.Errorf("with captions in %s, the chapters are %+v; want %q", attached, as.Chapters, want)
				}
			}
			var p Publish
			if err := json.Unmarshal(h.results[publishStage], &p); err != nil {
				t.Fatal(err)
			}
			master := h.read(c, p.Master)
			for language, want := range map[string]bool{"en": true, "es": true, "fr": false, "it": false} {
				if has := strings.Contains(master, `LANGUAGE="`+language+`"`); has != want {
					t.Errorf("captions in %s: %v; want %v in\n%s", language, has, want, master)
				}
			}
			for _, name := range []string{media.ChaptersName, media.ChaptersJSONName} {
				if text := h.read(c, path.Join(p.Generation, name)); !strings.Contains(text, "The coast") || strings.Contains(text, "mare") {
					t.Errorf("%s\n%s", name, text)
				}
			}
			text := h.read(c, path.Join(p.Generation, metadataFile))
			if !strings.Contains(text, "captions-es") || strings.Contains(text, "captions-it") ||
				!strings.Contains(text, `"mp4": "video.mp4"`) || !strings.Contains(text, `"preview": "preview.mp4"`) {
				t.Errorf("metadata.json\n%s", text)
			}
			names, err := c.PublishLocation().listFiles(t.Context(), p.Generation)
			if err != nil || p.Files != len(names) {
				t.Errorf("the generation has %d files, %v; want %d", len(names), err, p.Files)
			}
			if p.MP4 != path.Join(p.Generation, "video.mp4") || p.Preview != path.Join(p.Generation, "preview.mp4") {
				t.Errorf("published %+v", p.MP4Names)
			}
			video, preview := h.read(c, p.MP4), h.read(c, p.Preview)
			if !strings.HasPrefix(video[4:], "ftyp") || len(video) <= len(preview) || len(preview) < 1000 {
				t.Errorf("%s has %d bytes, %s %d", p.MP4, len(video), p.Preview, len(preview))
			}
			for _, f := range names {
				if strings.HasPrefix(f.Name, "captions-fr") || strings.HasPrefix(f.Name, "captions-it") {
					t.Errorf("the generation still has %s", f.Name)
				}
			}
		})
	}
}

// read returns a published file.
func (h *bucketHosts) read(c Config, name string) string {
	h.t.Helper()
	if c.PublishBucket == nil {
		return read(h.t, filepath.Join(c.PublishDir, name))
	}
	f, _, _, err := c.PublishBucket.Open(h.t.Context(), name)
	if err != nil {
		h.t.Fatal(err)
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		h.t.Fatal(err)
	}
	return string(text)
}
