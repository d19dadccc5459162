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
	// maxLogSize is the size at which the server's log becomes the old log. The two
	// files stay below about twice this size.
	maxLogSize = 16 << 20
	// logCheckInterval is how often the size is checked while the server runs.
	logCheckInterval = time.Minute
	// logTailBytes is how much of the log is read to explain why a server ended.
	logTailBytes = 16 << 10
)

// openLog opens the log for a server; the server's messages begin at the offset.
func (c *cluster) openLog() (f *os.File, offset int64, err error) {
	if err := c.rotateLog(maxLogSize); err != nil {
		return nil, 0, fmt.Errorf("rotate server log: %w", err)
	}
	path := filepath.Join(c.home, logName)
	// O_APPEND lets rotateLog empty the file while a server writes to it.
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

// rotateLog copies the log to the old log if it is larger than limit, and empties
// it. The file stays, because a running server writes to it.
func (c *cluster) rotateLog(limit int64) error {
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
	// The log exceeds the limit only by the growth between two checks.
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

// logSince is the end of the log after the offset. It is part of another error, so an
// unreadable log is no error.
func (c *cluster) logSince(offset int64) string {
	f, err := os.Open(filepath.Join(c.home, logName))
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	if offset > info.Size() {
		offset = 0 // the log was rotated meanwhile
	}
	text := make([]byte, logTailBytes)
	n, _ := f.ReadAt(text, max(offset, info.Size()-logTailBytes))
	return string(text[:n])
}
