package upload

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"syscall"
)

// statusChecksumMismatch is a status code of tus.
const statusChecksumMismatch = 460

// problem is an error that the client gets as problem details (RFC 9457).
type problem struct {
	status          int
	kind            string // end of the problem type; empty: the status decides
	detail          string
	retryAfter      int // seconds; 0 for no header
	closeConnection bool
	err             error // for OnError; the client does not get it
}

func (p *problem) Error() string { return p.detail }
func (p *problem) Unwrap() error { return p.err }

// Is makes errNotFound match ErrNotFound.
func (p *problem) Is(target error) bool { return target == ErrNotFound && p == errNotFound }

func newProblem(status int, format string, args ...any) *problem {
	return &problem{status: status, detail: fmt.Sprintf(format, args...)}
}

func badRequest(format string, args ...any) *problem {
	return newProblem(http.StatusBadRequest, format, args...)
}

// interruption returns a problem after which the connection is closed.
func interruption(status int, detail string) *problem {
	return &problem{status: status, detail: detail, closeConnection: true}
}

// as sets the kind, and after sets the header Retry-After. Both return p.
func (p *problem) as(kind string) *problem    { p.kind = kind; return p }
func (p *problem) after(seconds int) *problem { p.retryAfter = seconds; return p }

// Problems without a body that is still to be read.
var (
	errNotFound         = newProblem(http.StatusNotFound, "there is no such upload")
	errBusy             = newProblem(http.StatusLocked, "another request is using this upload").after(1)
	errCompleting       = newProblem(http.StatusLocked, "the upload is being completed").after(10)
	errDiskFull         = newProblem(http.StatusInsufficientStorage, "there is not enough disk space").after(60)
	errEmptyFile        = badRequest("the file is empty")
	errChecksumMismatch = newProblem(statusChecksumMismatch, "the checksum differs; nothing was appended")
	errSHA256Mismatch   = newProblem(statusChecksumMismatch, "the file has another sha256; the upload was deleted")
)

// Problems that end the reading of the body.
var (
	errTakenOver      = interruption(http.StatusConflict, "another request took this upload over").as("upload-taken-over")
	errStalled        = interruption(http.StatusRequestTimeout, "no data arrived for too long")
	errBodyIncomplete = interruption(http.StatusBadRequest, "the body is incomplete")
	errRevoked        = interruption(http.StatusUnauthorized,
		"the key or session of this upload is not valid any more; use a valid one").as("unauthenticated")
	errClosing      = interruption(http.StatusServiceUnavailable, "the server is shutting down").after(5)
	errTooManyBytes = interruption(http.StatusRequestEntityTooLarge, "the body is longer than announced")
)

// kindOfStatus contains the default kinds. They are part of the API and must not change.
var kindOfStatus = map[int]string{
	http.StatusBadRequest:            "invalid-request",
	http.StatusNotFound:              "not-found",
	http.StatusMethodNotAllowed:      "method-not-allowed",
	http.StatusRequestTimeout:        "upload-stalled",
	http.StatusGone:                  "upload-expired",
	http.StatusPreconditionFailed:    "tus-version",
	http.StatusRequestEntityTooLarge: "too-large",
	http.StatusUnsupportedMediaType:  "unsupported-media-type",
	http.StatusUnprocessableEntity:   "invalid",
	http.StatusLocked:                "upload-busy",
	http.StatusTooManyRequests:       "too-many-uploads",
	statusChecksumMismatch:           "checksum-mismatch",
	http.StatusInternalServerError:   "internal",
	http.StatusServiceUnavailable:    "unavailable",
	http.StatusInsufficientStorage:   "disk-full",
}

// kindRequestTaken is the kind of a request id that belongs to another task.
const kindRequestTaken = "request-id-taken"

// diskError converts the errors of a full disk to a problem.
func diskError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		full := *errDiskFull
		full.err = err
		return &full
	}
	return err
}

// writeProblem writes an error as problem details. It reports internal errors to OnError.
func (u *Uploads) writeProblem(w http.ResponseWriter, r *http.Request, id string, err error) {
	p, ok := errors.AsType[*problem](err)
	if !ok {
		u.options.OnError(id, err)
		p = newProblem(http.StatusInternalServerError, "an internal error occurred")
	} else if p.err != nil {
		u.options.OnError(id, p.err)
	}
	h := w.Header()
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	if p.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="cuelight"`)
	}
	if p.closeConnection && r.ProtoMajor == 1 {
		h.Set("Connection", "close")
	}
	if r.Method == http.MethodHead {
		w.WriteHeader(p.status)
		return
	}
	kind := cmp.Or(p.kind, kindOfStatus[p.status])
	problemType := "about:blank"
	if u.options.ProblemTypePrefix != "" {
		problemType = u.options.ProblemTypePrefix + kind
	}
	title := cmp.Or(u.options.ProblemTitle(kind), http.StatusText(p.status))
	if p.status == statusChecksumMismatch {
		title = "Checksum Mismatch"
	}
	writeJSON(w, p.status, "application/problem+json", map[string]any{
		"type": problemType, "title": title, "status": p.status, "detail": p.detail,
	})
}

func writeJSON(w http.ResponseWriter, status int, contentType string, value any) {
	body, err := json.Marshal(value)
	if err != nil { // impossible for the values here
		status, body = http.StatusInternalServerError, nil
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone
}
