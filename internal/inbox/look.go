package inbox

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// look goes through all directories once.
func (w *watcher) look(ctx context.Context, now time.Time) {
	w.looks++
	var skip []os.FileInfo
	for _, dir := range w.Skip {
		if info, err := os.Stat(dir); err == nil {
			skip = append(skip, info)
		}
	}
	whole := true
	for _, dir := range w.Dirs {
		if err := w.walk(ctx, dir, skip, now); err != nil {
			whole = false
		}
	}
	if !whole || ctx.Err() != nil {
		return // what was not seen may still be there
	}
	for path, e := range w.known {
		if e.look != w.looks {
			delete(w.known, path)
		}
	}
}

// walk notes the files in a directory. Its error says that not all was seen;
// Trouble has been told why.
func (w *watcher) walk(ctx context.Context, root string, skip []os.FileInfo, now time.Time) error {
	var missed error
	home, err := realPath(root)
	if err != nil {
		home = "" // which no link leads into; the walk will tell why
	}
	// With the slash, a root that is a symbolic link is followed.
	err = filepath.WalkDir(root+"/", func(path string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		top := path == root+"/"
		switch {
		case err != nil && !top && errors.Is(err, fs.ErrNotExist):
			return nil // gone in the meantime
		case err != nil:
			missed = err
			w.trouble(filepath.Clean(path), err)
			return fs.SkipDir
		case d.IsDir():
			if !top && (isUnfinished(d.Name()) || isSkipped(d, skip)) {
				return fs.SkipDir
			}
			return nil
		case isUnfinished(d.Name()), isNoVideo(d.Name()):
			return nil
		}
		if info := regular(path, d, home); info != nil {
			w.saw(File{Path: filepath.Clean(path), Size: info.Size(), ModTime: info.ModTime()}, now)
		}
		return nil
	})
	if err == nil && missed == nil {
		for dir := range w.troubled {
			if dir == filepath.Clean(root) || strings.HasPrefix(dir, filepath.Clean(root)+"/") {
				w.trouble(dir, nil)
			}
		}
	}
	return errors.Join(err, missed)
}

// regular is the file's information, or nil for what is no file, and for a
// link that leads to a file outside home, the watched directory's real path.
func regular(path string, d fs.DirEntry, home string) os.FileInfo {
	var info os.FileInfo
	var err error
	switch {
	case d.Type()&fs.ModeSymlink != 0:
		var real string
		if real, err = realPath(path); err != nil || !isBelow(real, home) {
			return nil
		}
		info, err = os.Lstat(real)
	case d.Type().IsRegular():
		info, err = d.Info()
	default:
		return nil
	}
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

func isBelow(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return dir != "" && err == nil && filepath.IsLocal(rel)
}

func isSkipped(d fs.DirEntry, skip []os.FileInfo) bool {
	if len(skip) == 0 {
		return false
	}
	info, err := d.Info()
	if err != nil {
		return false
	}
	for _, s := range skip {
		if os.SameFile(info, s) {
			return true
		}
	}
	return false
}

// isNoVideo: names of what commonly lies beside videos. A name that is not known is
// no reason to pass a file over.
func isNoVideo(name string) bool {
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

// isUnfinished: names that hide a file, or say that it is not complete.
func isUnfinished(name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "~") || strings.HasSuffix(name, "~") {
		return true
	}
	switch strings.ToLower(filepath.Ext(name)) {
	case ".part", ".partial", ".filepart", ".tmp", ".temp", ".crdownload", ".download", ".opdownload", ".!ut", ".!qb", ".aria2":
		return true
	}
	return false
}
