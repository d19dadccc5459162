package remote

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/store/engine"
)

// Files gives remote workers the files of their claims, and receives theirs. Names are
// slash-separated paths from the worker, so an implementation must expect any.
type Files interface {
	// OpenInput opens a file that the claim may read. Any other name is fs.ErrNotExist.
	OpenInput(ctx context.Context, c engine.Claim, name string) (io.ReadSeekCloser, error)

	// OutputSize returns how many bytes of an output have been received, 0 for none. A name that
	// the claim may not write is a *RefusedError.
	OutputSize(ctx context.Context, c engine.Claim, name string) (int64, error)

	// WriteOutput appends to an output of total bytes, whose size was at. When it is complete, its
	// SHA-256 (hexadecimal) must be sum, if that is not empty; otherwise it is removed.
	WriteOutput(ctx context.Context, c engine.Claim, name string, at, total int64, sum string, from io.Reader) error

	// Accept checks the outputs of an attempt that says it has completed, and returns its result,
	// which may differ from the worker's. A *RefusedError makes the attempt fail, and
	// ErrOutputsElsewhere releases the claim; after other errors it is called again. It may be called
	// again after it has succeeded.
	Accept(ctx context.Context, c engine.Claim, result json.RawMessage) (json.RawMessage, error)
}

// InputAddresses may be implemented by Files, so that workers fetch inputs from elsewhere.
type InputAddresses interface {
	// InputAddress returns an http or https address at which GET returns a file that the claim may
	// read, also by ranges, without other credentials and for some minutes. It returns "" if there is
	// none, and the worker gets what OpenInput opens. Errors are those of OpenInput.
	InputAddress(ctx context.Context, c engine.Claim, name string) (string, error)
}

// RefusedError says why a file or a result of a worker is not accepted.
type RefusedError struct {
	Reason string
	// IsTask says that the reason is the task and not the worker: no attempt can succeed.
	IsTask bool
}

func (e *RefusedError) Error() string { return e.Reason }

// ErrOutputsElsewhere means that an attempt says it has completed, but outputs are missing that it may
// have sent to a coordinator on another host.
var ErrOutputsElsewhere = errors.New("files of this attempt have not arrived at this coordinator; " +
	"another one may have received them, so the stage begins again")

// serveInput serves a file that a claim may read, also by ranges.
func (c *Coordinator) serveInput(w http.ResponseWriter, r *http.Request) {
	claim, err := c.fileClaim(r)
	var address string
	if elsewhere, ok := c.o.Files.(InputAddresses); ok && err == nil && r.URL.Query().Get("redirect") != "no" {
		address, err = elsewhere.InputAddress(r.Context(), claim, r.PathValue("path"))
	}
	var content io.ReadSeekCloser
	if err == nil && address == "" {
		content, err = c.o.Files.OpenInput(r.Context(), claim, r.PathValue("path"))
	}
	if err != nil {
		c.writeFileError(w, r, err)
		return
	}
	h := w.Header()
	h.Set("Cache-Control", "private, no-store")
	if address != "" {
		h.Set("Location", address)
		w.WriteHeader(http.StatusTemporaryRedirect) // without a body: the address is a secret
		return
	}
	defer content.Close()
	h.Set("Content-Type", "application/octet-stream")
	// A file of a claim never changes, so its name is its version.
	h.Set("ETag", strconv.Quote(claim.Task.String()+"/"+r.PathValue("path")))
	http.ServeContent(&slowWriter{w, http.NewResponseController(w)}, r, "", time.Time{}, content)
}

// fileClaim returns the claim of a request for a file.
func (c *Coordinator) fileClaim(r *http.Request) (engine.Claim, error) {
	principal, err := c.authenticate(r)
	if err != nil {
		return engine.Claim{}, err
	}
	if c.o.Files == nil {
		return engine.Claim{}, problem.New(problem.NotFound, "this pipeline has no files")
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	holder, claim, err := c.requestClaim(ctx, request{r, principal})
	if err == nil {
		c.showProgress(holder, claim.Token)
	}
	return claim, err
}

// pieceTimeout is how long a piece of a file may take on its way.
const pieceTimeout = time.Minute

// slowWriter lets a response take long while each piece makes progress.
type slowWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (w *slowWriter) Write(b []byte) (int, error) {
	_ = w.control.SetWriteDeadline(time.Now().Add(pieceTimeout))
	return w.ResponseWriter.Write(b)
}

// serveOutput appends to an output. HEAD returns how much of it there is.
func (c *Coordinator) serveOutput(w http.ResponseWriter, r *http.Request) {
	claim, err := c.fileClaim(r)
	name := r.PathValue("path")
	var size int64
	if err == nil {
		size, err = c.o.Files.OutputSize(r.Context(), claim, name)
	}
	if err == nil && r.Method == http.MethodPut {
		size, err = c.receive(w, r, claim, name, size)
	}
	w.Header().Set("Upload-Offset", strconv.FormatInt(size, 10))
	if err != nil {
		readRest(w, r)
		c.writeFileError(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// maxPiece is the largest body of one PUT, in bytes.
const maxPiece = 8 << 20

func (c *Coordinator) receive(w http.ResponseWriter, r *http.Request, claim engine.Claim, name string, size int64) (int64, error) {
	first, last, total, err := parseContentRange(r.Header.Get("Content-Range"))
	switch {
	case err != nil || r.ContentLength != last-first+1:
		return size, problem.New(problem.InvalidRequest, "Content-Range must be bytes FIRST-LAST/TOTAL, or bytes */0, and match Content-Length")
	case r.ContentLength > maxPiece:
		return size, problem.New(problem.TooLarge, "a request may have up to %d bytes", maxPiece)
	case first != size:
		return size, problem.New(problem.UploadOffset, "the file has %d bytes, and the request begins at %d", size, first)
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(pieceTimeout))
	sum := r.Header.Get("Content-SHA256")
	body := &bodyReader{r: io.LimitReader(r.Body, r.ContentLength)}
	err = c.o.Files.WriteOutput(r.Context(), claim, name, first, total, sum, body)
	if err == nil {
		return last + 1, nil
	}
	if _, isRefused := errors.AsType[*RefusedError](err); isRefused {
		return size, err
	}
	now, sizeErr := c.o.Files.OutputSize(r.Context(), claim, name)
	switch {
	case sizeErr != nil:
		return size, err
	case body.err != nil:
		return now, problem.New(problem.InvalidRequest, "the body has ended before its Content-Length; the file has %d bytes", now)
	case now != first:
		return now, problem.New(problem.UploadOffset, "another request has written the file, which has %d bytes", now)
	}
	return now, err
}

// bodyReader remembers why a body ended early.
type bodyReader struct {
	r   io.Reader
	err error
}

func (b *bodyReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}

// readRest reads the rest of a piece that is refused. Otherwise the server would close the
// connection, and a client that sends all of its request first would not see the answer.
func readRest(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength <= maxPiece {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(pieceTimeout))
		_, _ = io.CopyN(io.Discard, r.Body, maxPiece) // the client may be gone
	}
}

// parseContentRange parses "bytes FIRST-LAST/TOTAL". An empty file is "bytes */0", whose last
// position is -1.
func parseContentRange(text string) (first, last, total int64, err error) {
	if text == "bytes */0" {
		return 0, -1, 0, nil
	}
	rest, ok := strings.CutPrefix(text, "bytes ")
	positions, totalText, ok2 := strings.Cut(rest, "/")
	firstText, lastText, ok3 := strings.Cut(positions, "-")
	if !ok || !ok2 || !ok3 {
		return 0, 0, 0, errors.New("invalid Content-Range")
	}
	first, err1 := strconv.ParseInt(firstText, 10, 64)
	last, err2 := strconv.ParseInt(lastText, 10, 64)
	total, err3 := strconv.ParseInt(totalText, 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil || first < 0 || last < first || last >= total {
		return 0, 0, 0, errors.New("invalid Content-Range")
	}
	return first, last, total, nil
}

func (c *Coordinator) writeFileError(w http.ResponseWriter, r *http.Request, err error) {
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		err = problem.New(problem.Invalid, "%s", refused.Reason)
	case errors.Is(err, fs.ErrNotExist):
		err = problem.New(problem.NotFound, "the claim has no such file")
	}
	c.writeError(w, r, err)
}
