package upload

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

const (
	bufferBytes = 256 << 10
	// diskCheckBytes is how often the free disk space is checked while data arrives:
	// other programs write to the disk, too.
	diskCheckBytes = 64 << 20
)

// buffers are shared by all requests.
var buffers = sync.Pool{New: func() any { return new([bufferBytes]byte) }}

// appendBody appends a body to an upload, which the caller has locked, and increases
// e.offset. After an error it keeps the bytes that arrived, unless there is a checksum or
// the body is too long.
func (u *Uploads) appendBody(e *record, body io.Reader, sum *checksum) (err error) {
	f, err := u.openPart(e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if sum != nil {
		if err := u.setVerifiedOffset(e.ID, e.offset); err != nil {
			return err
		}
		body = io.TeeReader(body, sum.hash)
	}
	n, err := u.writeBody(f, body, u.remaining(e))
	if err == nil && sum != nil && !sum.matches() {
		err = errChecksumMismatch
	}
	if err != nil && (sum != nil || errors.Is(err, errTooManyBytes)) {
		return errors.Join(err, f.Truncate(e.offset))
	}
	if syncErr := f.Sync(); syncErr != nil {
		return errors.Join(err, fmt.Errorf("write upload: %w", diskError(syncErr)))
	}
	if sum != nil {
		if err := u.clearVerifiedOffset(e.ID); err != nil {
			return err
		}
	}
	e.offset += n
	e.lastWrite = time.Now()
	return err
}

// writeBody writes a body to a file. It returns the number of written bytes, also with an
// error. A body of more than maxBytes bytes is errTooManyBytes.
func (u *Uploads) writeBody(f *os.File, body io.Reader, maxBytes int64) (written int64, err error) {
	buffer := buffers.Get().(*[bufferBytes]byte)
	defer buffers.Put(buffer)
	checked := int64(0)
	for {
		n, readErr := body.Read(buffer[:min(bufferBytes, maxBytes-written+1)])
		if int64(n) > maxBytes-written {
			return written, errTooManyBytes
		}
		if n > 0 {
			w, err := f.Write(buffer[:n])
			written += int64(w)
			if err != nil {
				return written, fmt.Errorf("write upload: %w", diskError(err))
			}
		}
		if errors.Is(readErr, io.EOF) {
			return written, nil
		}
		if readErr != nil {
			return written, readErr
		}
		if written-checked >= diskCheckBytes {
			checked = written
			if err := u.checkDisk(); err != nil {
				return written, err
			}
		}
	}
}
