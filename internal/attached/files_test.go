package attached_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cuelight/cuelight/internal/attached"
)

func TestFromName_FindsTheLanguageAndTheKind(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]attached.File{
		"film.de.srt":                 {Language: "de"},
		"/srv/a.b/film.pt-br.vtt":     {Language: "pt-BR"},
		"film.en.forced.srt":          {Language: "en", Forced: true},
		"film.2026.eng.SDH.ass":       {Language: "en", SDH: true},
		"film.fr.default.cc.ttml":     {Language: "fr", SDH: true, Default: true},
		"film.srt":                    {},
		"film.forced.srt":             {Forced: true},
		"film.remastered-edition.srt": {},
		"film.chapters.txt":           {Chapters: true},
		"The.End.chapters.vtt":        {Chapters: true},
		"film.Chapters.de.vtt":        {Chapters: true, Language: "de"},
		"chapters.txt":                {Chapters: true},
		"chapters.de.srt":             {Language: "de"},
		"film.chapters.srt":           {},
	} {
		if got := attached.FromName(name); got != want {
			t.Errorf("%s: %+v; want %+v", name, got, want)
		}
	}
}

func TestNextTo_FindsTheFilesOfOneVideo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{
		"film.mp4", "film.en.srt", "film.de.forced.vtt", "film.txt", "film.srt", "film.en.jpg", "film2.en.srt", "film.part.mp4", "other.en.srt",
		"film.cut.en.srt", ".en.srt", "en.srt", "film.chapters.txt", "chapters.txt", "film2.chapters.txt", "film.chapters.jpg", "film.de.txt",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		filepath.Join(dir, "film.chapters.txt"), filepath.Join(dir, "film.de.forced.vtt"), filepath.Join(dir, "film.en.srt"),
	}
	if got := attached.NextTo(filepath.Join(dir, "film.mp4")); !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
	if got := attached.NextTo("/nowhere/film.mp4"); len(got) != 0 {
		t.Errorf("%q in a directory that does not exist", got)
	}
}

func TestRead_FollowsNoLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret, link := filepath.Join(dir, "secret.srt"), filepath.Join(dir, "film.en.srt")
	err := errors.Join(os.WriteFile(secret, []byte(srt), 0o600), os.Symlink(secret, link), os.Mkdir(filepath.Join(dir, "a.de.srt"), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	if data, err := attached.Read(secret); err != nil || string(data) != srt {
		t.Errorf("%q, %v", data, err)
	}
	for _, name := range []string{link, filepath.Join(dir, "a.de.srt"), filepath.Join(dir, "a.pdf"), filepath.Join(dir, "none.srt")} {
		if data, err := attached.Read(name); err == nil {
			t.Errorf("%s gives %q", name, data)
		}
	}
}
