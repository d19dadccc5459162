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
	roomEvery = 64 << 20
)

// buffers are what files go through, so that a thousand uploads that wait for
// their clients do not have one each made anew.
type buffers struct{ pool sync.Pool }

func (b *buffers) get() *[]byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return p
	}
	p := make([]byte, bufferBytes)
	return &p
}

// body is a request's body whose client must not stall.
type body struct {
	io.Reader
	s *session
}

func (b body) Read(p []byte) (int, error) {
	if err := b.s.expect(); err != nil {
		return 0, err
	}
	n, err := b.Reader.Read(p)
	b.s.came(n, err)
	if err != nil && err != io.EOF {
		err = b.s.readError(err)
	}
	return n, err
}

func (body) Close() error { return nil } // the server closes it

// receive appends at most most bytes to a file, and returns how many it has
// written, also with an error. More than most is errTooLong.
func (u *Uploads) receive(f *os.File, from io.Reader, most int64) (written int64, err error) {
	buffer := u.buffers.get()
	defer u.buffers.pool.Put(buffer)
	looked := int64(0)
	for {
		n, readErr := from.Read((*buffer)[:min(bufferBytes, most-written+1)])
		if int64(n) > most-written {
			return written, errTooLong
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
		if written-looked >= roomEvery {
			looked = written
			if err := u.room(0); err != nil {
				return written, err
			}
		}
	}
}

// most is how long an upload may become.
func (u *Uploads) most(e *entry) int64 {
	if e.state.Length >= 0 {
		return e.state.Length
	}
	if e.state.Most > 0 {
		return min(e.state.Most, u.o.MaxBytes)
	}
	return u.o.MaxBytes
}

// add appends a body to what has come, and moves e.offset. What came before an
// error stays, unless it came under a checksum, or was more than announced. The
// caller holds the upload.
func (u *Uploads) add(e *entry, from io.Reader, sum *checksum) (err error) {
	f, err := u.openPart(e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if sum != nil {
		if err := u.setMark(e.ID, e.offset); err != nil {
			return err
		}
		from = io.TeeReader(from, sum.hash)
	}
	n, err := u.receive(f, from, u.most(e)-e.offset)
	if err == nil && sum != nil && !sum.right() {
		err = errWrongSum
	}
	if err != nil && (sum != nil || errors.Is(err, errTooLong)) {
		return errors.Join(err, f.Truncate(e.offset))
	}
	if syncErr := f.Sync(); syncErr != nil {
		return errors.Join(err, fmt.Errorf("write upload: %w", diskError(syncErr)))
	}
	if sum != nil {
		if err := u.clearMark(e.ID); err != nil {
			return err
		}
	}
	e.offset += n
	e.touched = time.Now()
	return err
}
