package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
	"github.com/cuelight/cuelight/web/ui"
)

// publishedFiles finds the files of published videos; package video documents their
// directories.
type publishedFiles struct {
	publish string // directory
	base    string // path of the web server
}

// url returns the address of a task's file if it exists.
func (p publishedFiles) url(task store.ID, name string) (string, bool) {
	path := filepath.Join(task.String(), name)
	if _, err := os.Stat(filepath.Join(p.publish, path)); err != nil {
		return "", false
	}
	return web.PublishedPath(p.base, filepath.ToSlash(path)), true
}

// newest returns the address of a file in the newest generation that has it.
func (p publishedFiles) newest(task store.ID, name string) (string, bool) {
	entries, err := os.ReadDir(filepath.Join(p.publish, task.String()))
	if err != nil {
		return "", false // not published yet
	}
	for _, e := range slices.Backward(entries) {
		if strings.HasPrefix(e.Name(), "gen-") && !strings.HasSuffix(e.Name(), ".tmp") {
			if address, ok := p.url(task, filepath.Join(e.Name(), name)); ok {
				return address, true
			}
		}
	}
	return "", false
}

func (p publishedFiles) playback(task store.ID) (v ui.Playback, ok bool) {
	v.HLS, ok = p.url(task, "master.m3u8")
	v.DASH, _ = p.url(task, "manifest.mpd")
	v.Poster, _ = p.newest(task, "poster.jpg")
	return v, ok
}
