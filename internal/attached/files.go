package attached

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/text/language"

	"github.com/cuelight/cuelight/internal/media/captions"
)

// FromName returns what the name of a file says of it: of film.pt-BR.forced.srt, the language and that it is forced; of
// film.chapters.txt, that it has chapters. The language is empty if the name has none.
func FromName(name string) File {
	f, _ := fromName(filepath.Base(name))
	return f
}

// fromName also returns what is before the language or the word chapters.
func fromName(name string) (f File, video string) {
	words := strings.Split(strings.TrimSuffix(name, filepath.Ext(name)), ".")
	for i, word := range slices.Backward(words) {
		switch strings.ToLower(word) {
		case "forced":
			f.Forced = true
		case "sdh", "cc":
			f.SDH = true
		case "default":
			f.Default = true
		default:
			if f.Chapters = isChapters(word, name); f.Chapters {
				return f, strings.Join(words[:i], ".")
			}
			if tag, err := language.Parse(word); err == nil && i > 0 {
				f.Language = tag.String()
				if f.Chapters = isChapters(words[i-1], name); f.Chapters {
					i--
				}
				return f, strings.Join(words[:i], ".")
			}
			return f, ""
		}
	}
	return f, ""
}

// NextTo returns the files with captions in the directory of a video that have its name and a language, film.en.srt for film.mp4,
// and the file with its chapters, film.chapters.txt.
func NextTo(video string) (files []string) {
	entries, err := os.ReadDir(filepath.Dir(video))
	if err != nil {
		return nil
	}
	title := strings.TrimSuffix(filepath.Base(video), filepath.Ext(video))
	for _, e := range entries {
		if f, of := fromName(e.Name()); of == title && (f.Chapters || isCaptions(e.Name())) {
			files = append(files, filepath.Join(filepath.Dir(video), e.Name()))
		}
	}
	return files
}

func isCaptions(name string) bool { return slices.Contains(captions.Extensions, extension(name)) }

func extension(name string) string { return strings.ToLower(filepath.Ext(name)) }

// isChapters reports whether a word in the name of a file says that it has chapters, in one of their formats.
func isChapters(word, name string) bool {
	return strings.EqualFold(word, "chapters") && slices.Contains([]string{".vtt", ".txt"}, extension(name))
}

// Extensions are the endings of the names of files that [Read] reads: those of subtitles, and that of chapters in lines.
var Extensions = append(slices.Clone(captions.Extensions), ".txt")

// Read reads a file with captions or chapters, but no more of it than they may have. It follows no link: who can write next to a
// watched video gets no other file published. A file of another kind is an [*InvalidError].
func Read(file string) ([]byte, error) {
	if !slices.Contains(Extensions, extension(file)) {
		return nil, &InvalidError{"the ending is not that of a file with subtitles or chapters; allowed: " + strings.Join(Extensions, " ")}
	}
	in, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if info, err := in.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, &InvalidError{fmt.Sprintf("%s is not a regular file", filepath.Base(file))}
	}
	return io.ReadAll(io.LimitReader(in, captions.MaxBytes+1))
}
