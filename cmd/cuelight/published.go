package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
	"github.com/cuelight/cuelight/web/ui"
)

// showcase is where published videos lie, and under which address they are served;
// see the documentation of package video for what is in a video's directory.
type showcase struct {
	publish string // directory
	base    string // path
}

// file is the address of a published file, if it is there.
func (p showcase) file(task store.ID, name string) (string, bool) {
	path := filepath.Join(task.String(), name)
	if _, err := os.Stat(filepath.Join(p.publish, path)); err != nil {
		return "", false
	}
	return web.PublishedPath(p.base, filepath.ToSlash(path)), true
}

// newest is the address of a file of the newest generation that has it.
func (p showcase) newest(task store.ID, name string) (string, bool) {
	entries, err := os.ReadDir(filepath.Join(p.publish, task.String()))
	if err != nil {
		return "", false // not published yet
	}
	for _, e := range slices.Backward(entries) {
		if strings.HasPrefix(e.Name(), "gen-") && !strings.HasSuffix(e.Name(), ".tmp") {
			if address, ok := p.file(task, filepath.Join(e.Name(), name)); ok {
				return address, true
			}
		}
	}
	return "", false
}

func (p showcase) playback(task store.ID) (v ui.Playback, ok bool) {
	v.HLS, ok = p.file(task, "master.m3u8")
	v.DASH, _ = p.file(task, "manifest.mpd")
	v.Poster, _ = p.newest(task, "poster.jpg")
	return v, ok
}
