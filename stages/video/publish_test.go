package video

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/media"
)

func TestPublish_KeepsOldGenerationForViewers(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	first := h.mustPublish(m)
	second := h.mustPublish(m)
	if first.Generation == second.Generation || first.Master != second.Master {
		t.Fatalf("got %+v, then %+v", first, second)
	}
	master := read(t, filepath.Join(h.PublishDir, second.Master))
	if strings.Contains(master, filepath.Base(first.Generation)) ||
		!strings.Contains(master, filepath.Base(second.Generation)) {
		t.Errorf("the master playlist is\n%s", master)
	}
	wantPlayable(t, filepath.Join(h.PublishDir, first.Generation, "master.m3u8"), m.tr.Output.Video)

	// The time of the replacement counts, not that of creation.
	long := time.Now().Add(-48 * time.Hour)
	for _, p := range []Publish{first, second} {
		if err := os.Chtimes(filepath.Join(h.PublishDir, p.Generation), long, long); err != nil {
			t.Fatal(err)
		}
	}
	third := h.mustPublish(m)
	for p, want := range map[string]bool{first.Generation: false, second.Generation: true, third.Generation: true} {
		if exists(filepath.Join(h.PublishDir, p)) != want {
			t.Errorf("%s exists: %v", p, !want)
		}
	}
	h.KeepOld = -1
	fourth := h.mustPublish(m)
	if names := list(t, h.PublishedDir(h.job.Task)); len(names) != 3 || names[0] != filepath.Base(fourth.Generation) {
		t.Errorf("files: %q", names)
	}
}

func TestTaskDir_MayBeRemovedAfterCompletion(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	first := h.mustPublish(m)
	if err := os.RemoveAll(h.TaskDir(h.job.Task)); err != nil {
		t.Fatal(err)
	}
	master := filepath.Join(h.PublishDir, first.Master)
	wantPlayable(t, master, m.tr.Output.Video)
	_, err := h.transcode(t.Context(), h.job, m.in, chunkSpec{})
	wantRetry(t, "transcode without its source", err)
	_, err = h.tryPublish(m)
	wantRetry(t, "publish without what was assembled", err)
	wantPlayable(t, master, m.tr.Output.Video)

	again := h.mustPublish(h.mustMake())
	if again.Generation == first.Generation || again.Master != first.Master {
		t.Errorf("got %+v, then %+v", first, again)
	}
	wantPlayable(t, master, m.tr.Output.Video)
}

func TestPublish_RestoresRemovedDirectory(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	h.mustPublish(m)
	if err := os.RemoveAll(h.PublishedDir(h.job.Task)); err != nil {
		t.Fatal(err)
	}
	again := h.mustPublish(m)
	wantPlayable(t, filepath.Join(h.PublishDir, again.Master), m.tr.Output.Video)
}

func TestPublish_SwitchesAtomically(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	master := filepath.Join(h.PublishDir, h.mustPublish(m).Master)
	stop, watched := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-stop:
				watched <- n
				return
			default:
			}
			text, err := os.ReadFile(master)
			if err != nil {
				t.Errorf("the master playlist is missing: %v", err)
				continue
			}
			for line := range strings.Lines(string(text)) {
				if line[0] == '#' {
					continue
				}
				if _, err := os.Stat(filepath.Join(filepath.Dir(master), strings.TrimSpace(line))); err != nil {
					t.Errorf("a referenced playlist is missing: %v", err)
				}
			}
		}
	}()
	for range 20 {
		h.mustPublish(m)
	}
	close(stop)
	if n := <-watched; n < 20 {
		t.Errorf("read only %d times", n)
	}
}

func TestPublish_OvertakenAttemptDoesNotSwitch(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	public := must(t)(h.makePublishedDir(h.job.Task)).(string)
	zombie := mustWorkdir(t, public, generationPrefix)
	err := h.linkGeneration(t.Context(), h.job, zombie, filepath.Join(h.TaskDir(h.job.Task), m.as.Dir), m.in, m.tr, m.as)
	if err != nil {
		t.Fatal(err)
	}
	p := h.mustPublish(m)
	before := read(t, filepath.Join(h.PublishDir, p.Master))
	if !exists(zombie.path) {
		t.Fatal("the directory of a running attempt was removed")
	}
	s := generationSwitch{publishedDir: public, workdir: zombie}
	if err := s.run(t.Context(), h.job); err == nil || s.switched {
		t.Errorf("got %v, switched %v", err, s.switched)
	}
	if read(t, filepath.Join(h.PublishDir, p.Master)) != before {
		t.Error("the newer generation is no longer served")
	}
}

func TestPublish_ChangesNothingWhenCancelled(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.publish(ctx, h.job, m.in, m.tr, m.md, m.as); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if names := list(t, h.PublishedDir(h.job.Task)); len(names) != 0 {
		t.Errorf("files: %q", names)
	}
}

func TestPublish_ChecksCopiesOnAnotherFileSystem(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	h.PublishDir = otherFileSystem(t)
	p := h.mustPublish(m)
	wantPlayable(t, filepath.Join(h.PublishDir, p.Master), m.tr.Output.Video)

	// The files have the right sizes, but are not the checked ones.
	init := filepath.Join(h.TaskDir(h.job.Task), m.as.Dir, m.tr.Output.Video[0].Init)
	content := read(t, init)
	if err := os.Remove(init); err != nil {
		t.Fatal(err)
	}
	write(t, init, strings.Repeat("x", len(content)))
	_, err := h.tryPublish(m)
	if !errors.Is(err, media.ErrMismatch) {
		t.Errorf("got %v", err)
	}
	if names := list(t, h.PublishedDir(h.job.Task)); len(names) != 3 {
		t.Errorf("files: %q", names)
	}
}

func TestPublish_DetectsMissingFiles(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	if err := os.Remove(filepath.Join(h.TaskDir(h.job.Task), m.as.Dir, "poster.jpg")); err != nil {
		t.Fatal(err)
	}
	_, err := h.tryPublish(m)
	wantRetry(t, "missing file", err)
	if names := list(t, h.PublishedDir(h.job.Task)); len(names) != 0 {
		t.Errorf("files: %q", names)
	}
}

func TestPublish_RemovesOnlyOldGenerations(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	h.KeepOld = -1
	public := h.PublishedDir(h.job.Task)
	for _, name := range []string{
		"gen-1", "gen-0001-AAAAAAAAAA", "other-0001-aaaaaaaaaa", "captions", "gen-0999-aaaaaaaaaa",
	} {
		write(t, filepath.Join(public, name, "x"), "somebody's")
	}
	write(t, filepath.Join(public, switchPrefix+"123", "master.m3u8"), "of an attempt that was killed")
	write(t, filepath.Join(public, "gen-0500-aaaaaaaaaa", "x"), "still served")
	write(t, filepath.Join(public, "manifest.mpd"), "<BaseURL>gen-0500-aaaaaaaaaa/</BaseURL>")
	overtaken := generationSwitch{publishedDir: public}
	d := overtaken.findRemovable(true)
	var freed int64
	if n, err := d.remove(t.Context(), &freed, func() {}); n != 1 || err != nil || freed == 0 {
		t.Errorf("removed %d with %d bytes, %v; want the prepared manifests", n, freed, err)
	}
	d.close()
	for _, name := range []string{"gen-0500-aaaaaaaaaa", "gen-0999-aaaaaaaaaa"} {
		if !exists(filepath.Join(public, name)) {
			t.Errorf("an overtaken attempt removed %s", name)
		}
	}
	h.mustPublish(m)
	h.mustPublish(m)
	want := []string{"captions", "gen-0001-AAAAAAAAAA", "gen-1", "master.m3u8", "manifest.mpd", "other-0001-aaaaaaaaaa"}
	for _, name := range want {
		if !exists(filepath.Join(public, name)) {
			t.Errorf("%s is missing", name)
		}
	}
	// Of the new directories, only the served one stays.
	if names := list(t, public); len(names) != len(want)+1 {
		t.Errorf("files: %q", names)
	}
}

func TestWithBaseURL_FollowsSchema(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`<?xml version="1.0"?><!-- c --><MPD a="b"><Period/></MPD>`: `<?xml version="1.0"?><!-- c --><MPD a="b">` +
			"\n  <BaseURL>g&amp;/</BaseURL><Period/></MPD>",
		`<MPD><ProgramInformation><Title>t</Title></ProgramInformation><Period/></MPD>`: `<MPD><ProgramInformation>` +
			`<Title>t</Title></ProgramInformation>` +
			"\n  <BaseURL>g&amp;/</BaseURL><Period/></MPD>",
	} {
		got, err := withBaseURL([]byte(in), "g&/")
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "<MPD/>", "<MPD>", "words", "<MPD></MPD>"} {
		if got, err := withBaseURL([]byte(in), "g/"); err == nil {
			t.Errorf("%q: got %s", in, got)
		}
	}
}

func FuzzWithBaseURL(f *testing.F) {
	for _, s := range []string{
		"<MPD><Period/></MPD>", "<MPD><ProgramInformation/><Period/></MPD>", "<MPD", "<a><b><MPD/></b></a>",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := withBaseURL([]byte(s), "gen/")
		if err != nil {
			return
		}
		if len(got) <= len(s) || strings.Replace(string(got), "\n  <BaseURL>gen/</BaseURL>", "", 1) != s {
			t.Errorf("%q became %q", s, got)
		}
	})
}
