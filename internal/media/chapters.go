package media

import (
	"path/filepath"

	"github.com/cuelight/cuelight/internal/media/captions"
)

// The files with the chapters of a video: a text track for pages, and what HLS players read.
const (
	ChaptersName     = "chapters.vtt"
	ChaptersJSONName = "chapters.json"
)

// describeChapters takes the chapters of the source over. Chapters have the clock of the packets. They are no reason to reject a source.
func describeChapters(raw *rawProbe, info *Info) {
	var all []captions.Chapter
	for _, c := range raw.Chapters {
		start, isKnown := c.Start.seconds()
		end, _ := c.End.seconds()
		if isKnown {
			all = append(all, captions.Chapter{Start: start, End: end, Title: c.Tags["title"]})
		}
	}
	info.Chapters = captions.FitChapters(all, -info.Start, info.Duration)
	switch {
	case raw.hasMoreChapters:
		info.warn("the chapters are left out: there are too many of them")
	case len(info.Chapters) > captions.MaxChapters:
		info.warn("only the first %d of the chapters are kept", captions.MaxChapters)
		info.Chapters = info.Chapters[:captions.MaxChapters]
	}
}

// writeChapters writes both files, if there are chapters.
func writeChapters(dir string, all []captions.Chapter) error {
	if len(all) == 0 {
		return nil
	}
	text, err := captions.ChaptersJSON(all)
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, ChaptersName), captions.ChaptersWebVTT(all)); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, ChaptersJSONName), append(text, '\n'))
}
