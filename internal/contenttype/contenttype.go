// Package contenttype has the media types of the files that pipelines publish. Call [Of].
// It does not look into files.
package contenttype

import (
	"path"
	"strings"
)

var types = map[string]string{
	".m3u8": "application/vnd.apple.mpegurl",
	".mpd":  "application/dash+xml",
	".mp4":  "video/mp4",
	".m4s":  "video/iso.segment",
	".m4a":  "audio/mp4",
	".m4v":  "video/mp4",
	".ts":   "video/mp2t",
	".webm": "video/webm",
	".vtt":  "text/vtt; charset=utf-8",
	".jpg":  "image/jpeg",
	".jpeg": "image/jpeg",
	".png":  "image/png",
	".webp": "image/webp",
	".json": "application/json",
	".txt":  "text/plain; charset=utf-8",
}

// Of returns the type of a file by its name. It is application/octet-stream for files that
// browsers must not interpret.
func Of(name string) string {
	if known, ok := types[strings.ToLower(path.Ext(name))]; ok {
		return known
	}
	return "application/octet-stream"
}
