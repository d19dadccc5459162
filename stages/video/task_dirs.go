package video

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cuelight/cuelight/store"
)

// TaskDir is the directory of a task's files until the task is deleted, or of their copies if they are
// in a bucket.
func (c Config) TaskDir(task store.ID) string {
	return filepath.Join(c.tasksDir(), task.String())
}

// copiesName is the directory of scratch copies. Results are never in it, so that none is taken for a
// copy where a directory was used before a bucket.
const copiesName = "copies"

func (c Config) tasksDir() string {
	if c.Bucket != nil {
		return filepath.Join(c.DataDir, copiesName, tasksName)
	}
	return filepath.Join(c.DataDir, tasksName)
}

// PublishedDir is the directory of a task's published video.
func (c Config) PublishedDir(task store.ID) string {
	return filepath.Join(c.PublishDir, task.String())
}

// makeTaskDir creates a task's directory if necessary.
func (c Config) makeTaskDir(task store.ID) (string, error) {
	if err := c.checkRoot("data", c.DataDir); err != nil {
		return "", err
	}
	dir := c.TaskDir(task)
	if err := os.MkdirAll(dir, privateMode); err != nil {
		return "", fmt.Errorf("create task directory: %w", err)
	}
	return filepath.Abs(dir)
}

// findTaskDir returns a task's directory, which earlier stages have created. It is
// missing if they ran on another host that does not share DataDir.
func (c Config) findTaskDir(task store.ID) (string, error) {
	if err := c.checkRoot("data", c.DataDir); err != nil {
		return "", err
	}
	dir, err := filepath.Abs(c.TaskDir(task))
	if err == nil {
		_, err = os.Stat(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		// If the parent is missing too, the disk is not mounted.
		_, parentErr := os.Stat(filepath.Dir(dir))
		err = &missingError{what: "the task's directory", path: dir, err: err, oneTask: parentErr == nil}
	}
	return dir, err
}

// makePublishedDir creates a task's published directory if necessary.
func (c Config) makePublishedDir(task store.ID) (string, error) {
	if err := c.checkRoot("publish", c.PublishDir); err != nil {
		return "", err
	}
	dir, err := filepath.Abs(c.PublishedDir(task))
	if err != nil {
		return "", err
	}
	if err := os.Mkdir(dir, servedMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("create published directory: %w", err)
	}
	return dir, setMode(dir, servedMode)
}

// checkRoot checks that a root directory exists, so that a stage does not write below
// the mount point of an unmounted disk.
func (c Config) checkRoot(what, dir string) error {
	if dir == "" {
		return fmt.Errorf("no %s directory is configured", what)
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &missingError{what: "the " + what + " directory", path: dir, err: err}
	case err != nil:
		return fmt.Errorf("read %s directory: %w", what, err)
	case !info.IsDir():
		return fmt.Errorf("the %s directory %q is not a directory", what, dir)
	}
	if c.Marker == "" {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(dir, c.Marker)); errors.Is(err, fs.ErrNotExist) {
		return &missingError{what: "the marker of the " + what + " directory", path: filepath.Join(dir, c.Marker), err: err}
	} else if err != nil {
		return fmt.Errorf("read %s directory: %w", what, err)
	}
	return nil
}

// missingError is a required directory or file that does not exist.
type missingError struct {
	what, path string
	err        error
	oneTask    bool // the path belongs to one task
}

func (e *missingError) Error() string {
	return fmt.Sprintf("%s %q does not exist on this host; is its disk mounted?", e.what, e.path)
}
func (e *missingError) Unwrap() error { return e.err }

// findResultDir returns the directory of an earlier stage's result. name comes from
// that result.
func findResultDir(parent, stage, name string) (string, error) {
	d, ok := parseDirName(name)
	if !ok || d.stage != stage || d.unfinished {
		return "", fmt.Errorf("%q is not a result directory of stage %s", name, stage)
	}
	dir := filepath.Join(parent, name)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return "", &missingError{what: "the output of stage " + stage, path: dir, err: err, oneTask: true}
	} else if err != nil {
		return "", fmt.Errorf("read output of stage %s: %w", stage, err)
	}
	return dir, nil
}
