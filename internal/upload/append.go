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
	// roomEvery is after how many bytes the disk is looked at again: others
	// write to it, too.
	diskCheckBytes = 64 << 20
)

// buffers are what files go through, so that a thousand uploads that wait for
// their clients do not have one each made anew.
type bufferPool struct{ pool sync.Pool }

func (b *bufferPool) get() *[]byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return p
	}
	p := make([]byte, bufferBytes)
	return &p
}

// body is a request's body whose client must not stall.
type timedBody struct {
	io.Reader
	request *activeRequest
}

func (b timedBody) Read(p []byte) (int, error) {
	if err := b.request.extendDeadlines(); err != nil {
		return 0, err
	}
	n, err := b.Reader.Read(p)
	b.request.received(n, err)
	if err != nil && err != io.EOF {
		err = b.request.readError(err)
	}
	return n, err
}

func (timedBody) Close() error { return nil } // the server closes it

// receive appends at most most bytes to a file, and returns how many it has
// written, also with an error. More than most is errTooLong.
func (u *Uploads) writeBody(f *os.File, from io.Reader, most int64) (written int64, err error) {
	buffer := u.buffers.get()
	defer u.buffers.pool.Put(buffer)
	looked := int64(0)
	for {
		n, readErr := from.Read((*buffer)[:min(bufferBytes, most-written+1)])
		if int64(n) > most-written {
			return written, errTooManyBytes
		}
		if n > 0 {
			w, err := f.Write((*buffer)[:n])
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
		if written-looked >= diskCheckBytes {
			looked = written
			if err := u.checkDisk(0); err != nil {
				return written, err
			}
		}
	}
}

// most is how long an upload may become.
func (u *Uploads) maxLength(e *record) int64 {
	if e.state.Length >= 0 {
		return e.state.Length
	}
	if e.state.MaxLength > 0 {
		return min(e.state.MaxLength, u.options.MaxBytes)
	}
	return u.options.MaxBytes
}

// add appends a body to what has come, and moves e.offset. What came before an
// error stays, unless it came under a checksum, or was more than announced. The
// caller holds the upload.
func (u *Uploads) appendBody(e *record, from io.Reader, sum *checksum) (err error) {
	f, err := u.openPart(e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if sum != nil {
		if err := u.setVerifiedOffset(e.ID, e.offset); err != nil {
			return err
		}
		from = io.TeeReader(from, sum.hash)
	}
	n, err := u.writeBody(f, from, u.maxLength(e)-e.offset)
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
