package video

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cuelight/cuelight/store"
)

// TaskDir is where the stages keep a task's files until it is deleted.
func (c Config) TaskDir(task store.ID) string {
	return filepath.Join(c.DataDir, "tasks", task.String())
}

// PublishedDir is where a task's video is published.
func (c Config) PublishedDir(task store.ID) string {
	return filepath.Join(c.PublishDir, task.String())
}

// makeTaskDir returns a task's directory, which exists then.
func (c Config) makeTaskDir(task store.ID) (string, error) {
	if err := c.checkRoot("data", c.DataDir); err != nil {
		return "", err
	}
	dir := c.TaskDir(task)
	if err := os.MkdirAll(dir, privateMode); err != nil {
		return "", fmt.Errorf("make task directory: %w", err)
	}
	return filepath.Abs(dir)
}

// findTaskDir returns the directory of a task that earlier stages have worked
// on. Its absence has its own words: it is what a stage meets that was claimed
// on another host than the one before it, without a directory in common.
func (c Config) findTaskDir(task store.ID) (string, error) {
	if err := c.checkRoot("data", c.DataDir); err != nil {
		return "", err
	}
	dir, err := filepath.Abs(c.TaskDir(task))
	if err == nil {
		_, err = os.Stat(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		// Without that of all tasks a disk is not mounted.
		_, above := os.Stat(filepath.Dir(dir))
		err = &missingError{what: "the task's directory", path: dir, err: err, oneTask: above == nil}
	}
	return dir, err
}

// makePublishedDir returns a task's published directory, which exists then.
func (c Config) makePublishedDir(task store.ID) (string, error) {
	if err := c.checkRoot("publish", c.PublishDir); err != nil {
		return "", err
	}
	dir, err := filepath.Abs(c.PublishedDir(task))
	if err != nil {
		return "", err
	}
	if err := os.Mkdir(dir, servedMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make published directory: %w", err)
	}
	return dir, setMode(dir, servedMode)
}

// checkRoot keeps a stage from filling the mount point of a disk that is not
// mounted.
func (c Config) checkRoot(what, dir string) error {
	if dir == "" {
		return fmt.Errorf("no %s directory is configured", what)
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &missingError{what: "the " + what + " directory", path: dir, err: err}
	case err != nil:
		return fmt.Errorf("look at %s directory: %w", what, err)
	case !info.IsDir():
		return fmt.Errorf("the %s directory %q is not a directory", what, dir)
	}
	if c.Marker == "" {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(dir, c.Marker)); errors.Is(err, fs.ErrNotExist) {
		return &missingError{what: "the mark of the " + what + " directory", path: filepath.Join(dir, c.Marker), err: err}
	} else if err != nil {
		return fmt.Errorf("look at %s directory: %w", what, err)
	}
	return nil
}

// missingError is a directory or file that must be there and is not.
type missingError struct {
	what, path string
	err        error
	oneTask    bool // the path belongs to one task
}

func (e *missingError) Error() string {
	return fmt.Sprintf("%s %q does not exist on this host; is its disk mounted?", e.what, e.path)
}
func (e *missingError) Unwrap() error { return e.err }

// findResultDir returns the directory in parent that an earlier stage has finished.
// The name comes from that stage's result.
func findResultDir(parent, stage, name string) (string, error) {
	d, ok := parseDirName(name)
	if !ok || d.stage != stage || d.unfinished {
		return "", fmt.Errorf("%q is not a directory of stage %s", name, stage)
	}
	dir := filepath.Join(parent, name)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return "", &missingError{what: "the output of stage " + stage, path: dir, err: err, oneTask: true}
	} else if err != nil {
		return "", fmt.Errorf("look at output of stage %s: %w", stage, err)
	}
	return dir, nil
}
