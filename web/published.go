package web

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/internal/contenttype"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

var errNoFile = problem.New(problem.NotFound, "the published file does not exist")

// maxFileAge is how long a file of a generation may be cached: it never changes.
const maxFileAge = 365 * 24 * time.Hour

// servePublished serves a published file. Only the browser may cache it, not a proxy.
func (s *Server) servePublished(w http.ResponseWriter, r *http.Request) {
	s.serveFile(w, r, "private", maxFileAge)
}

// serveFile serves a published file, with ranges. The open file stays the same if another replaces it.
func (s *Server) serveFile(w http.ResponseWriter, r *http.Request, caches string, maxAge time.Duration) {
	if keyID, isKey := strings.CutPrefix(r.PathValue("path"), video.EncryptionKeyPath); isKey && s.opts.EncryptionKey != nil {
		s.serveEncryptionKey(w, r, keyID)
		return
	}
	f, err := s.openPublished(r)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	defer f.Close()
	h := w.Header()
	// Browsers must not interpret files of other types.
	h.Set("Content-Type", contenttype.Of(r.PathValue("path")))
	h.Set("Etag", f.ETag)
	// The directory of a generation never changes; the files above it, which refer to the newest generation, do.
	h.Set("Cache-Control", caches+", no-cache")
	if strings.Contains(r.PathValue("path"), "/") {
		h.Set("Cache-Control", fmt.Sprintf("%s, max-age=%.0f, immutable", caches, maxAge.Seconds()))
	}
	http.ServeContent(w, r, "", f.Modified, f)
}

// serveEncryptionKey serves the key of a published video to clients that may have its files. No cache keeps it.
func (s *Server) serveEncryptionKey(w http.ResponseWriter, r *http.Request, keyID string) {
	var key [16]byte
	id, err := parsePathID(r)
	if err == nil {
		err = s.checkFile(r.Context(), id, media.MasterName)
	}
	if err == nil {
		key, err = s.opts.EncryptionKey(id, keyID)
	}
	if errors.Is(err, store.ErrNotFound) {
		err = errNoFile
	}
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(key[:])
}

// checkFile returns errNoFile if a published file does not exist.
func (s *Server) checkFile(ctx context.Context, id store.ID, name string) error {
	f, err := s.openPublishedFile(ctx, id, name)
	if err == nil {
		f.Close()
	}
	return err
}

// openPublished opens a file in the directory of its task, and never one outside of it.
func (s *Server) openPublished(r *http.Request) (PublishedFile, error) {
	id, err := parsePathID(r)
	if err != nil {
		return PublishedFile{}, err
	}
	return s.openPublishedFile(r.Context(), id, r.PathValue("path"))
}

func (s *Server) openPublishedFile(ctx context.Context, id store.ID, name string) (PublishedFile, error) {
	name, err := publishedName(id, name)
	if err != nil {
		return PublishedFile{}, err
	}
	if s.opts.OpenPublished != nil {
		f, err := s.opts.OpenPublished(ctx, name)
		if errors.Is(err, fs.ErrNotExist) {
			err = errNoFile
		}
		return f, err
	}
	f, info, err := s.openFile(name)
	if err != nil {
		return PublishedFile{}, err
	}
	return PublishedFile{f, info.ModTime(), fmt.Sprintf(`"%x-%x"`, info.Size(), info.ModTime().UnixNano())}, nil
}

// openFile opens a regular file in the published directory.
func (s *Server) openFile(name string) (*os.File, fs.FileInfo, error) {
	root, err := os.OpenRoot(s.opts.Published) // each time: the disk may have been mounted since
	if err != nil {
		return nil, nil, fmt.Errorf("open published directory: %w", err)
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a named pipe would block
	if err != nil {
		if isFileNotFound(err) {
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

// isFileNotFound reports whether an error of opening a file says that the file does not exist or is outside of the
// directory. A failing disk or too many open files are other errors.
func isFileNotFound(err error) bool {
	var errno syscall.Errno
	notFound := []syscall.Errno{syscall.ENOENT, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG, syscall.ENXIO}
	return !errors.As(err, &errno) || slices.Contains(notFound, errno) // os.Root refuses paths without an errno
}

// publishedName returns the path of a file below the published directory. Names that start with a dot or end in .tmp
// are of files that are being written or removed.
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
