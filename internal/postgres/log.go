package postgres

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

const (
	// maxLog is the size at which the server's log makes room: it becomes the
	// old log and starts anew, so the two stay below about twice of this.
	maxLog = 16 << 20
	// logEvery is how often its size is looked at while the server runs.
	logEvery = time.Minute
	// tailBytes is how much of it is read to explain an end.
	tailBytes = 16 << 10
)

// openLog opens the log for a server to write to; from is where it begins.
func (c *cluster) openLog() (f *os.File, from int64, err error) {
	if err := c.trimLog(maxLog); err != nil {
		return nil, 0, fmt.Errorf("rotate server log: %w", err)
	}
	path := filepath.Join(c.home, logName)
	// Appending is what lets trimLog empty the file under a running server.
	f, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("open server log: %w", err)
	}
	info, err := f.Stat()
	if err = errors.Join(err, c.account.Own(path)); err != nil {
		f.Close()
		return nil, 0, fmt.Errorf("open server log: %w", err)
	}
	return f, info.Size(), nil
}

// trimLog makes the log the old log if it is larger than limit. The file itself
// stays, for a running server writes to it.
func (c *cluster) trimLog(limit int64) error {
	path := filepath.Join(c.home, logName)
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() <= limit {
		return nil
	}
	if err != nil {
		return err
	}
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	// More than the limit only gets there within one look and the next.
	if _, err := from.Seek(max(0, info.Size()-limit), io.SeekStart); err != nil {
		return err
	}
	old := filepath.Join(c.home, oldLogName)
	to, err := os.OpenFile(old, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Close(), c.account.Own(old)); err != nil {
		return err
	}
	return os.Truncate(path, 0)
}

// logSince is the end of what the server has said since offset from. The log is
// there to explain something else, so not being able to read it is no error.
func (c *cluster) logSince(from int64) string {
	f, err := os.Open(filepath.Join(c.home, logName))
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	if from > info.Size() {
		from = 0 // it was trimmed in between
	}
	text := make([]byte, tailBytes)
	n, _ := f.ReadAt(text, max(from, info.Size()-tailBytes))
	return string(text[:n])
}
