package video

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

var errNotDir = errors.New("not a directory")

// openDir opens a directory in parent. It follows no link, also if a link replaces the
// directory meanwhile.
func openDir(parent *os.Root, name string) (*os.Root, error) {
	before, err := parent.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.IsDir() {
		return nil, fmt.Errorf("%q: %w", name, errNotDir)
	}
	dir, err := parent.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	after, err := dir.Stat(".")
	if err == nil && !os.SameFile(before, after) {
		err = fmt.Errorf("%q was replaced", name)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// readDir lists a directory.
func readDir(dir *os.Root) ([]fs.DirEntry, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}

// removeAll removes a name in dir with all its content. It adds to freed the bytes of
// files that have no other link, and calls each after every removed entry.
func removeAll(ctx context.Context, dir *os.Root, name string, freed *int64, each func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	info, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && info.IsDir() {
		err = removeContents(ctx, dir, name, freed, each)
	}
	if err != nil {
		return err
	}
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() && st.Nlink == 1 {
		*freed += info.Size()
	}
	each()
	return nil
}

// removeContents removes everything in a directory.
func removeContents(ctx context.Context, parent *os.Root, name string, freed *int64, each func()) error {
	dir, err := openDir(parent, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	entries, err := readDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := removeAll(ctx, dir, e.Name(), freed, each); err != nil {
			return err
		}
	}
	return nil
}
