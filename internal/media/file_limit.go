package media

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// defaultMaxFiles is more files than a transcode of a week makes. Without a limit, a child can use up the inodes of
// the disk with empty files.
const defaultMaxFiles = 1 << 20

// fileLimit limits the number of files in the directory of a child.
type fileLimit struct {
	dir  string // empty: the child writes nothing
	most int
	next time.Time // of the next count
}

func (t Tools) fileLimit(dir string) *fileLimit {
	return &fileLimit{dir: dir, most: cmp.Or(t.maxFiles, defaultMaxFiles), next: time.Now().Add(time.Second)}
}

// watch is check from time to time, so that counting takes a fiftieth of the time at most.
func (l *fileLimit) watch() error {
	began := time.Now()
	if began.Before(l.next) {
		return nil
	}
	err := l.check()
	l.next = time.Now().Add(max(time.Second, 50*time.Since(began)))
	return err
}

// check returns an error if there are too many files. It counts those that it can see, because the child may remove
// some meanwhile, and follows no links.
func (l *fileLimit) check() error {
	if l.dir == "" {
		return nil
	}
	root, err := os.OpenRoot(l.dir)
	if err != nil {
		return fmt.Errorf("count files: %w", err)
	}
	defer root.Close()
	n := 0
	err = fs.WalkDir(root.FS(), ".", func(string, fs.DirEntry, error) error {
		if n++; n > l.most {
			return fs.SkipAll
		}
		return nil
	})
	if err == nil && n > l.most {
		return fmt.Errorf("%w: the child made more than %d files", ErrMismatch, l.most)
	}
	return err
}
