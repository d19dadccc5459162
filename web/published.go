package web

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/cuelight/cuelight/store"
)

// mediaTypes are those of what pipelines publish. What else there is, a browser
// is not to make anything of.
var mediaTypes = map[string]string{
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

// published serves what a task has published, with ranges. A file that is replaced
// meanwhile is served to its end as it was: it is open.
func (s *Server) published(w http.ResponseWriter, r *http.Request) {
	f, info, err := s.openPublished(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer f.Close()
	h := w.Header()
	kind, ok := mediaTypes[strings.ToLower(path.Ext(r.PathValue("path")))]
	if !ok {
		kind = "application/octet-stream"
	}
	h.Set("Content-Type", kind)
	h.Set("Etag", fmt.Sprintf(`"%x-%x"`, info.Size(), info.ModTime().UnixNano()))
	// It may be kept by who is allowed to see it, and by nobody in between. What is
	// in the directory of a version never changes; what leads to the newest does.
	h.Set("Cache-Control", "private, no-cache")
	if strings.Contains(r.PathValue("path"), "/") {
		h.Set("Cache-Control", "private, max-age=31536000, immutable")
	}
	http.ServeContent(w, r, "", info.ModTime(), f)
}

// openPublished opens the file that a path names, in the directory of its task and
// nowhere else.
func (s *Server) openPublished(r *http.Request) (*os.File, fs.FileInfo, error) {
	id, err := pathID(r)
	if err != nil {
		return nil, nil, err
	}
	name, err := publishedName(id, r.PathValue("path"))
	if err != nil {
		return nil, nil, err
	}
	// Opened each time: the disk may have been mounted since.
	root, err := os.OpenRoot(s.o.Published)
	if err != nil {
		return nil, nil, fmt.Errorf("open published directory: %w", err)
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would have us wait
	if err != nil {
		if isNotThere(err) {
			err = errNoFile
		}
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errNoFile
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// isNotThere reports whether an error of opening says that there is no such file: none
// of that name, or one that leads out of the directory. A disk that fails, or too many
// files being open, is another matter.
func isNotThere(err error) bool {
	var no syscall.Errno
	return !errors.As(err, &no) || // what os.Root refuses by itself
		slices.Contains([]syscall.Errno{syscall.ENOENT, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG, syscall.ENXIO}, no)
}

var errNoFile = &problem{kind: kindNotFound, detail: "there is no such file"}

// publishedName is the path of a file below the published directory. What begins
// with a dot is about to take its place, and what ends in .tmp is not complete or
// is being removed.
func publishedName(task store.ID, name string) (string, error) {
	full := task.String() + "/" + name
	if !fs.ValidPath(full) || strings.ContainsAny(name, "\\\x00") {
		return "", errNoFile
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".tmp") {
			return "", errNoFile
		}
	}
	return full, nil
}
