package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

var errTooLong = errors.New("the download takes too long")

// checkpointBytes is how much of a download a crash may cost.
const checkpointBytes = 64 << 20

// download brings what u names to dst.
func download(ctx context.Context, u *url.URL, dst string, o Options) (f File, err error) {
	via := newTransport(o)
	defer via.CloseIdleConnections()
	p, err := openPartial(u, dst, o)
	if err != nil {
		return File{}, err
	}
	finished := false
	defer func() {
		if finished {
			p.f.Close()
			return
		}
		var e *Error
		p.close(!errors.As(err, &e) || !e.Permanent)
	}()

	ctx, stop := context.WithTimeoutCause(ctx, o.Timeout, errTooLong)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d := &transferring{p: p, o: o, sum: sha256.New(), via: via}
	if err := d.rehash(ctx); err != nil {
		return File{}, err
	}
	d.idle = time.AfterFunc(o.IdleTimeout, func() { cancel(d.tooSlow()) })
	defer d.idle.Stop()

	if err := d.run(ctx, u); err != nil {
		// The reason for a broken connection that this function broke.
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return File{}, err
	}
	if err := p.finish(dst); err != nil {
		return File{}, err
	}
	finished = true
	return File{Bytes: p.done, SHA256: hex.EncodeToString(d.sum.Sum(nil)), How: Download}, nil
}

// transferring is one download under way.
type transferring struct {
	p    *partial
	o    Options
	sum  hash.Hash // of the p.done bytes that there are
	via  *http.Transport
	idle *time.Timer
	came atomic.Int64 // bytes of the body since idle last began anew
}

// rehash brings the sum up to what an earlier call left.
func (d *transferring) rehash(ctx context.Context) error {
	if d.p.done == 0 {
		return nil
	}
	whole := d.o
	whole.Progress = func(n, _ int64) { d.o.Progress(n, d.p.state.Total) }
	from := io.NewSectionReader(d.p.f, 0, d.p.done)
	_, err := transfer(ctx, from, d.p.done, func(b []byte) error {
		d.sum.Write(b)
		return nil
	}, whole)
	return err
}

func (d *transferring) run(ctx context.Context, u *url.URL) error {
	resp, err := d.ask(ctx, u)
	if err != nil {
		return err
	}
	defer func() { resp.Body.Close() }()
	if resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && d.p.done > 0 {
		// The file has become shorter than what is here. Once more, all of it.
		resp.Body.Close()
		d.restart()
		if resp, err = d.ask(ctx, u); err != nil {
			return err
		}
	}
	if err := d.accept(resp); err != nil {
		return err
	}
	if err := d.receive(ctx, resp.Body); err != nil {
		return err
	}
	if d.p.done == 0 {
		return refused("the server sent an empty file")
	}
	if total := d.p.state.Total; total >= 0 && d.p.done != total {
		return fmt.Errorf("the server announced %d bytes and sent %d", total, d.p.done)
	}
	return nil
}

// ask sends the request, for the rest where a part is there.
func (d *transferring) ask(ctx context.Context, u *url.URL) (*http.Response, error) {
	header := http.Header{
		"User-Agent":      {"cuelight"},
		"Accept":          {"*/*"},
		"Accept-Encoding": {"identity"},
	}
	if d.p.done > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", d.p.done))
		header.Set("If-Range", d.p.state.validator())
	}
	return get(ctx, d.via, u, header)
}

// accept looks at the answer's head and makes the file ready for its body.
func (d *transferring) accept(resp *http.Response) error {
	if err := checkStatus(resp); err != nil {
		return err
	}
	if err := checkContent(resp.Header); err != nil {
		return err
	}
	if resp.StatusCode == http.StatusPartialContent {
		if err := d.checkRange(resp); err != nil {
			d.restart()
			return err
		}
	} else {
		d.restart()
		if err := d.p.begin(resp); err != nil {
			return err
		}
	}
	total := d.p.state.Total
	if total > d.o.MaxBytes {
		return d.tooLarge()
	}
	return checkSpace(d.p.path, max(total, d.p.done)-d.p.done, d.o.Reserve)
}

// checkRange makes sure that a partial answer is the part that was asked for,
// of the file that was begun.
func (d *transferring) checkRange(resp *http.Response) error {
	first, total, ok := contentRange(resp.Header.Get("Content-Range"))
	s := &d.p.state
	switch tag := resp.Header.Get("ETag"); {
	case d.p.done == 0 || !ok || first != d.p.done:
		return errors.New("the server sent another part of the file than was asked for")
	case s.ETag != "" && tag != "" && tag != s.ETag, s.Total >= 0 && total >= 0 && total != s.Total:
		return errors.New("the file changed on the server; what has come is thrown away")
	}
	if s.Total < 0 {
		s.Total = total
	}
	return nil
}

// restart forgets what has come.
func (d *transferring) restart() {
	d.p.done = 0
	d.p.state = partialState{Source: d.p.state.Source, Total: -1}
	d.sum.Reset()
}

// receive writes the body to the file.
func (d *transferring) receive(ctx context.Context, body io.Reader) error {
	buf := make([]byte, 256<<10)
	marked := d.p.done
	left := d.o.IdleTimeout
	for {
		d.idle.Reset(left)
		began := time.Now()
		n, err := body.Read(buf)
		d.idle.Stop() // a slow disk is not the server's fault
		left -= time.Since(began)
		if came := d.came.Add(int64(n)); came > 0 && came >= d.o.MinBytes {
			d.came.Store(0)
			left = d.o.IdleTimeout
		}
		if n > 0 {
			if err := d.keep(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return connectError(err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if d.p.done-marked >= checkpointBytes {
			marked = d.p.done
			if err := d.p.checkpoint(); err != nil {
				return err
			}
			if err := checkSpace(d.p.path, max(d.p.state.Total-d.p.done, 0), d.o.Reserve); err != nil {
				return err
			}
		}
	}
}

func (d *transferring) keep(b []byte) error {
	if d.p.done+int64(len(b)) > d.o.MaxBytes {
		return d.tooLarge()
	}
	// A body longer than announced is cut by net/http where it is announced
	// as Content-Length, but not where only Content-Range told.
	if total := d.p.state.Total; total >= 0 && d.p.done+int64(len(b)) > total {
		d.restart()
		return errors.New("the server sent more than it announced")
	}
	d.sum.Write(b)
	if err := d.p.write(b); err != nil {
		return err
	}
	d.o.Progress(d.p.done, d.p.state.Total)
	return nil
}

// tooSlow is why a download was given up whose idle timer has run out.
func (d *transferring) tooSlow() error {
	came := d.came.Load()
	if came == 0 {
		return fmt.Errorf("nothing has come from the server for %v", d.o.IdleTimeout)
	}
	return fmt.Errorf("the server is too slow: %s in %v, where at least %s are wanted",
		bytesText(came), d.o.IdleTimeout, bytesText(d.o.MinBytes))
}

func (d *transferring) tooLarge() error {
	return refused("the file is larger than the limit of %s", bytesText(d.o.MaxBytes))
}
