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

	"github.com/cuelight/cuelight/internal/diskspace"
)

var errTimeout = errors.New("the download takes too long")

// checkpointBytes is how much of a download a crash can lose.
const checkpointBytes = 64 << 20

// download copies the file at u to dst.
func download(ctx context.Context, u *url.URL, dst string, o Options) (File, error) {
	transport := newTransport(o)
	defer transport.CloseIdleConnections()
	p, err := openPartial(u, dst, o)
	if err != nil {
		return File{}, err
	}
	d := &downloader{partial: p, options: o, hash: sha256.New(), transport: transport}
	err = d.run(ctx, u)
	if err == nil {
		err = p.finish(dst)
	}
	if err != nil {
		e, ok := errors.AsType[*Error](err)
		p.close(!ok || !e.Permanent)
		return File{}, err
	}
	p.file.Close()
	return File{Bytes: p.received, SHA256: hex.EncodeToString(d.hash.Sum(nil)), Method: Download}, nil
}

// downloader is the state of one download.
type downloader struct {
	partial   *partialFile
	options   Options
	hash      hash.Hash // of the first partial.received bytes
	transport *http.Transport
	idleTimer *time.Timer
	received  atomic.Int64 // bytes since idleTimer started; see IdleTimeout
}

// run resumes or starts the download, within its time limits.
func (d *downloader) run(ctx context.Context, u *url.URL) error {
	ctx, stop := context.WithTimeoutCause(ctx, d.options.Timeout, errTimeout)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := d.rehash(ctx); err != nil {
		return err
	}
	d.idleTimer = time.AfterFunc(d.options.IdleTimeout, func() { cancel(d.slowError()) })
	defer d.idleTimer.Stop()
	err := d.transfer(ctx, u)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause // it broke the connection
	}
	return err
}

// rehash hashes the bytes from an earlier call.
func (d *downloader) rehash(ctx context.Context) error {
	if d.partial.received == 0 {
		return nil
	}
	o := d.options
	o.Progress = func(n, _ int64) { d.options.Progress(n, d.partial.state.Total) }
	earlier := io.NewSectionReader(d.partial.file, 0, d.partial.received)
	_, err := readAll(ctx, earlier, d.partial.received, func(b []byte) error {
		d.hash.Write(b)
		return nil
	}, o)
	return err
}

func (d *downloader) transfer(ctx context.Context, u *url.URL) error {
	resp, err := d.request(ctx, u)
	if err != nil {
		return err
	}
	defer func() { resp.Body.Close() }()
	if resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && d.partial.received > 0 {
		// The file is now shorter than the partial file. Request all of it.
		resp.Body.Close()
		d.restart()
		if resp, err = d.request(ctx, u); err != nil {
			return err
		}
	}
	if err := d.checkResponse(resp); err != nil {
		return err
	}
	if err := d.receive(ctx, resp.Body); err != nil {
		return err
	}
	if d.partial.received == 0 {
		return permanent("the server sent an empty file")
	}
	if total := d.partial.state.Total; total >= 0 && d.partial.received != total {
		return fmt.Errorf("the server announced %d bytes and sent %d", total, d.partial.received)
	}
	return nil
}

// request sends a GET request, with a range if a part of the file is here.
func (d *downloader) request(ctx context.Context, u *url.URL) (*http.Response, error) {
	header := http.Header{
		"User-Agent":      {"cuelight"},
		"Accept":          {"*/*"},
		"Accept-Encoding": {"identity"},
	}
	if d.partial.received > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", d.partial.received))
		header.Set("If-Range", d.partial.state.validator())
	}
	return getFollowingRedirects(ctx, d.transport, u, header)
}

// checkResponse checks the response's header and prepares the file for its body.
func (d *downloader) checkResponse(resp *http.Response) error {
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
		if err := d.partial.begin(resp); err != nil {
			return err
		}
	}
	if d.partial.state.Total > d.options.MaxBytes {
		return d.tooLargeError()
	}
	return d.checkSpace()
}

// checkRange checks that a partial response is the requested part of the same file.
func (d *downloader) checkRange(resp *http.Response) error {
	first, total, ok := parseContentRange(resp.Header.Get("Content-Range"))
	s := &d.partial.state
	switch tag := resp.Header.Get("ETag"); {
	case d.partial.received == 0 || !ok || first != d.partial.received:
		return errors.New("the server did not send the requested range")
	case s.ETag != "" && tag != "" && tag != s.ETag, s.Total >= 0 && total >= 0 && total != s.Total:
		return errors.New("the file changed on the server; the next attempt starts over")
	}
	if s.Total < 0 {
		s.Total = total
	}
	return nil
}

// checkSpace checks that the rest of the file fits on the disk.
func (d *downloader) checkSpace() error {
	return checkSpace(d.partial.path, max(d.partial.state.Total-d.partial.received, 0), d.options.Reserve)
}

// restart discards the received bytes.
func (d *downloader) restart() {
	d.partial.received = 0
	d.partial.state = partialState{Source: d.partial.state.Source, Total: -1}
	d.hash.Reset()
}

// receive writes the body to the file.
func (d *downloader) receive(ctx context.Context, body io.Reader) error {
	buf := make([]byte, 256<<10)
	checkpoint := d.partial.received
	remaining := d.options.IdleTimeout
	for {
		d.idleTimer.Reset(remaining)
		began := time.Now()
		n, err := body.Read(buf)
		d.idleTimer.Stop() // the time to write does not count
		remaining -= time.Since(began)
		if received := d.received.Add(int64(n)); received > 0 && received >= d.options.MinBytes {
			d.received.Store(0)
			remaining = d.options.IdleTimeout
		}
		if n > 0 {
			if err := d.write(buf[:n]); err != nil {
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
		if d.partial.received-checkpoint >= checkpointBytes {
			checkpoint = d.partial.received
			if err := d.partial.checkpoint(); err != nil {
				return err
			}
			if err := d.checkSpace(); err != nil {
				return err
			}
		}
	}
}

func (d *downloader) write(b []byte) error {
	size := d.partial.received + int64(len(b))
	if size > d.options.MaxBytes {
		return d.tooLargeError()
	}
	// net/http limits a body to its Content-Length, but not to its Content-Range.
	if total := d.partial.state.Total; total >= 0 && size > total {
		d.restart()
		return errors.New("the server sent more than it announced")
	}
	d.hash.Write(b)
	if err := d.partial.write(b); err != nil {
		return err
	}
	d.options.Progress(d.partial.received, d.partial.state.Total)
	return nil
}

func (d *downloader) slowError() error {
	received := d.received.Load()
	if received == 0 {
		return fmt.Errorf("the server sent nothing for %v", d.options.IdleTimeout)
	}
	return fmt.Errorf("the server is too slow: %s in %v; the minimum is %s",
		diskspace.Format(received), d.options.IdleTimeout, diskspace.Format(d.options.MinBytes))
}

func (d *downloader) tooLargeError() error {
	return permanent("the file is larger than the limit of %s", diskspace.Format(d.options.MaxBytes))
}
