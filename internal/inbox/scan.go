package inbox

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// scan records the files of all directories, and forgets files that disappeared.
func (w *watcher) scan(ctx context.Context, now time.Time) {
	w.scans++
	var skip []os.FileInfo
	for _, dir := range w.Skip {
		if info, err := os.Stat(dir); err == nil {
			skip = append(skip, info)
		}
	}
	complete := true
	for _, dir := range w.Dirs {
		if err := w.walk(ctx, dir, skip, now); err != nil {
			complete = false
		}
	}
	if !complete || ctx.Err() != nil {
		return // unseen files may still exist
	}
	for path, e := range w.known {
		if e.lastScan != w.scans {
			delete(w.known, path)
		}
	}
}

// walk records the files below root. It returns an error if it could not see all of
// them; OnError has received the reason.
func (w *watcher) walk(ctx context.Context, root string, skip []os.FileInfo, now time.Time) error {
	var walkErr error
	realRoot, err := realPath(root)
	if err != nil {
		realRoot = "" // contains no link's target; WalkDir reports the error
	}
	// The trailing slash makes WalkDir follow a root that is a symbolic link.
	err = filepath.WalkDir(root+"/", func(path string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		isRoot := path == root+"/"
		switch {
		case err != nil && !isRoot && errors.Is(err, fs.ErrNotExist):
			return nil // deleted during the scan
		case err != nil:
			walkErr = err
			w.setError(filepath.Clean(path), err)
			return fs.SkipDir
		case d.IsDir():
			if !isRoot && (isUnfinished(d.Name()) || isSkipped(d, skip)) {
				return fs.SkipDir
			}
			return nil
		case isUnfinished(d.Name()), isOtherFile(d.Name()):
			return nil
		}
		if info := regularFile(path, d, realRoot); info != nil {
			w.record(File{Path: filepath.Clean(path), Size: info.Size(), ModTime: info.ModTime()}, now)
		}
		return nil
	})
	if err == nil && walkErr == nil {
		w.clearErrors(filepath.Clean(root))
	}
	return errors.Join(err, walkErr)
}

// clearErrors reports that a directory and all below it can be read.
func (w *watcher) clearErrors(root string) {
	for dir := range w.failing {
		if dir == root || strings.HasPrefix(dir, root+"/") {
			w.setError(dir, nil)
		}
	}
}

// regularFile returns nil if path is not a regular file, or is a link to a file outside
// realRoot.
func regularFile(path string, d fs.DirEntry, realRoot string) os.FileInfo {
	switch {
	case d.Type()&fs.ModeSymlink != 0:
		target, err := realPath(path)
		if err != nil || !isInside(target, realRoot) {
			return nil
		}
		path = target
	case !d.Type().IsRegular():
		return nil
	}
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	return info
}

func realPath(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

func isInside(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return dir != "" && err == nil && filepath.IsLocal(rel)
}

func isSkipped(d fs.DirEntry, skip []os.FileInfo) bool {
	if len(skip) == 0 {
		return false
	}
	info, err := d.Info()
	return err == nil && slices.ContainsFunc(skip, func(s os.FileInfo) bool { return os.SameFile(info, s) })
}

// isOtherFile reports whether the name belongs to a file type that is often stored next
// to videos. A file with an unknown name may be a video.
func isOtherFile(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".txt", ".md", ".nfo", ".log", ".htm", ".html", ".url", ".pdf", ".doc", ".docx", ".odt", ".csv", ".xls", ".xlsx",
		".json", ".xml", ".yml", ".yaml", ".ini", ".db", ".lnk",
		".srt", ".ass", ".ssa", ".vtt", ".sub", ".idx", ".sup", ".lrc",
		".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".svg", ".ico", ".psd",
		".zip", ".rar", ".7z", ".gz", ".bz2", ".xz", ".tar", ".torrent",
		".md5", ".sha1", ".sha256", ".sfv", ".par2", ".edl", ".cue", ".m3u", ".m3u8", ".mpd", ".pls":
		return true
	}
	switch strings.ToLower(name) {
	case "readme", "license", "thumbs.db", "desktop.ini":
		return true
	}
	return false
}

// isUnfinished reports whether the name hides a file or marks it as incomplete.
func isUnfinished(name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "~") || strings.HasSuffix(name, "~") {
		return true
	}
	switch strings.ToLower(filepath.Ext(name)) {
	case ".part", ".partial", ".filepart", ".tmp", ".temp", ".crdownload", ".download", ".opdownload",
		".!ut", ".!qb", ".aria2":
		return true
	}
	return false
}
