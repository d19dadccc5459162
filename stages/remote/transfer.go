package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/store"
)

// ErrRejected says that the coordinator refuses a file: it has another name or size than the claim
// allows, or there is no such input.
var ErrRejected = errors.New("the coordinator refuses a file")

// Download copies an input of a claim into a file, continues what the file has already, and
// returns the SHA-256 (hexadecimal) and the size of the whole. It repeats requests that fail until
// ctx is done. progress is called with the bytes so far.
func (c *Client) Download(
	ctx context.Context, token store.ID, name, file string, progress func(done int64),
) (sum string, size int64, err error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	digest := sha256.New()
	if size, err = io.Copy(digest, f); err != nil {
		return "", 0, err
	}
	d := download{client: c, path: filePath(token, "input", name), to: io.MultiWriter(f, digest), size: size, progress: progress}
	if err := retry(ctx, d.request); err != nil {
		return "", 0, fmt.Errorf("download %s: %w", name, err)
	}
	return hex.EncodeToString(digest.Sum(nil)), d.size, f.Close()
}

// ReadInput returns length bytes of an input of a claim from an offset on. It repeats requests that fail until
// ctx is done.
func (c *Client) ReadInput(ctx context.Context, token store.ID, name string, offset, length int64) ([]byte, error) {
	var content bytes.Buffer
	d := download{
		client: c, path: filePath(token, "input", name), to: &content, size: offset, end: offset + length, progress: func(int64) {},
	}
	err := retry(ctx, d.request)
	if err == nil && d.size != d.end {
		err = fmt.Errorf("%w: it ends at byte %d", ErrRejected, d.size)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s at %d: %w", name, offset, err)
	}
	return content.Bytes(), nil
}

// download is a download in progress.
type download struct {
	client   *Client
	path     string
	to       io.Writer
	size     int64 // what is there already
	end      int64 // 0: that of the file
	progress func(int64)
}

// ranges is the range of the bytes that are missing.
func (d *download) ranges() http.Header {
	text := fmt.Sprintf("bytes=%d-", d.size)
	if d.end > 0 {
		text += strconv.FormatInt(d.end-1, 10)
	}
	return http.Header{"Range": {text}}
}

func (d *download) request(ctx context.Context) error {
	header := d.ranges()
	path := d.path
	if !d.client.followsRedirects() {
		path += "?redirect=no"
	}
	response, err := d.client.send(ctx, http.MethodGet, path, nil, header)
	if e, ok := errors.AsType[*responseError](err); ok && e.status == http.StatusTemporaryRedirect {
		return d.elsewhere(ctx, response.Header.Get("Location"), header)
	}
	if e, ok := errors.AsType[*responseError](err); ok && e.status == http.StatusRequestedRangeNotSatisfiable {
		return nil // all of it is there
	}
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusPartialContent && (d.size > 0 || d.end > 0) {
		response.Body.Close()
		return fmt.Errorf("%w: it ignores ranges", ErrRejected)
	}
	return d.copy(response)
}

// elsewhere continues the download at an address to which the coordinator redirects, without the key.
// If nothing arrives from there, the coordinator is asked for the bytes for some time.
func (d *download) elsewhere(ctx context.Context, address string, header http.Header) error {
	before := d.size
	err := d.requestElsewhere(ctx, address, header)
	if err != nil && ctx.Err() == nil && d.size == before {
		d.client.avoidRedirects()
	}
	return err
}

func (d *download) requestElsewhere(ctx context.Context, address string, header http.Header) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return errors.New("the coordinator redirects to something that is no address") // it may have a secret
	}
	r.Header = header
	response, err := d.client.o.HTTP.Do(r)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the address
		}
		return fmt.Errorf("fetch from %s: %w", r.URL.Host, err)
	}
	switch {
	case response.StatusCode == http.StatusRequestedRangeNotSatisfiable && d.size > 0:
		response.Body.Close()
		return nil // all of it is there
	case response.StatusCode == http.StatusPartialContent, response.StatusCode == http.StatusOK && d.size == 0 && d.end == 0:
		return d.copy(response)
	}
	response.Body.Close()
	return fmt.Errorf("fetch from %s: it answers with status %d", r.URL.Host, response.StatusCode)
}

// copy appends the body of a response, and closes it.
func (d *download) copy(response *http.Response) error {
	defer response.Body.Close()
	body := &stallReader{r: response.Body, timer: time.AfterFunc(pieceTimeout, func() { response.Body.Close() })}
	defer body.timer.Stop()
	_, err := io.Copy(io.MultiWriter(d.to, counter{d}), body)
	return err
}

// counter counts what was written.
type counter struct{ *download }

func (c counter) Write(b []byte) (int, error) {
	c.size += int64(len(b))
	c.progress(c.size)
	return len(b), nil
}

// stallReader ends a body from which nothing arrives.
type stallReader struct {
	r     io.Reader
	timer *time.Timer
}

func (s *stallReader) Read(b []byte) (int, error) {
	s.timer.Reset(pieceTimeout)
	return s.r.Read(b)
}

// Upload sends a file as an output of a claim, in pieces of 8 MiB, and continues what the
// coordinator has of it. It repeats requests that fail until ctx is done. sent is called with the
// size of each piece that has arrived.
func (c *Client) Upload(ctx context.Context, token store.ID, name, file string, sent func(n int64)) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	digest := sha256.New()
	if _, err := io.Copy(digest, f); err != nil {
		return err
	}
	u := upload{
		client: c, path: filePath(token, "output", name), file: f, total: info.Size(),
		sum: hex.EncodeToString(digest.Sum(nil)), sent: sent,
	}
	if err := u.run(ctx); err != nil {
		return fmt.Errorf("upload %s: %w", name, err)
	}
	return nil
}

// upload is an upload in progress.
type upload struct {
	client    *Client
	path      string
	file      *os.File
	at, total int64
	sum       string
	sent      func(int64)
}

func (u *upload) run(ctx context.Context) error {
	buffer := make([]byte, min(u.total, maxPiece))
	for done := false; !done; done = u.at >= u.total {
		piece := buffer[:min(u.total-u.at, maxPiece)]
		if _, err := u.file.ReadAt(piece, u.at); err != nil && len(piece) > 0 {
			return err
		}
		at := u.at
		if err := retry(ctx, func(ctx context.Context) error { return u.request(ctx, piece, at) }); err != nil {
			return err
		}
		u.sent(u.at - at)
	}
	return nil
}

// request sends a piece. If the coordinator has another part of the file, at becomes its end.
func (u *upload) request(ctx context.Context, piece []byte, at int64) error {
	ctx, cancel := context.WithTimeout(ctx, pieceTimeout)
	defer cancel()
	contentRange := fmt.Sprintf("bytes %d-%d/%d", at, at+int64(len(piece))-1, u.total)
	if u.total == 0 {
		contentRange = "bytes */0"
	}
	header := http.Header{
		"Content-Range":  {contentRange},
		"Content-Sha256": {u.sum}, "Content-Type": {"application/octet-stream"},
	}
	response, err := u.client.send(ctx, http.MethodPut, u.path, bytes.NewReader(piece), header)
	if e, ok := errors.AsType[*responseError](err); ok && e.kind == problem.UploadOffset && response != nil {
		if end, parseErr := strconv.ParseInt(response.Header.Get("Upload-Offset"), 10, 64); parseErr == nil && end <= u.total {
			u.at = end // the answer to an earlier request was lost
			return nil
		}
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	u.at = at + int64(len(piece))
	return nil
}

// retry calls do until it succeeds, fails for good, or ctx is done.
func retry(ctx context.Context, do func(ctx context.Context) error) error {
	for delay := 100 * time.Millisecond; ; delay = min(2*delay, retryDelay) {
		err := do(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, ErrRejected) {
			return err
		}
		if e, ok := errors.AsType[*responseError](err); ok && e.status >= 400 && e.status < 500 && e.status != http.StatusTooManyRequests {
			return fmt.Errorf("%w: %w", ErrRejected, err)
		}
		if _, isLocal := errors.AsType[*os.PathError](err); isLocal {
			return err
		}
		if err := ctxsleep.For(ctx, delay); err != nil {
			return err
		}
	}
}

// filePath is the path of a claim's file.
func filePath(token store.ID, kind, name string) string {
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return "/claims/" + token.String() + "/" + kind + "/" + strings.Join(parts, "/")
}
