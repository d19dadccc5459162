package upload

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"syscall"
)

// statusChecksumMismatch is tus's own.
const statusChecksumMismatch = 460

// refusal is an error that the client is told.
type problem struct {
	status          int
	kind            string // of problem; empty: that of the status
	detail          string
	retryAfter      int // seconds, for Retry-After; 0: none
	closeConnection bool
	err             error // for this side, if anything
}

func (r *problem) Error() string { return r.detail }
func (r *problem) Unwrap() error { return r.err }

func newProblem(status int, format string, args ...any) *problem {
	return &problem{status: status, detail: fmt.Sprintf(format, args...)}
}

var (
	errNotFound         = &problem{status: http.StatusNotFound, detail: "there is no such upload", err: ErrNotFound}
	errBusy             = &problem{status: http.StatusLocked, detail: "another request is adding to this upload", retryAfter: 1}
	errCompleting       = &problem{status: http.StatusLocked, detail: "all has come, and is being made a file of", retryAfter: 10}
	errTakenOver        = &problem{status: http.StatusConflict, kind: "upload-taken-over", detail: "another request has taken this upload over", closeConnection: true}
	errStalled          = &problem{status: http.StatusRequestTimeout, detail: "nothing has come for too long", closeConnection: true}
	errBodyIncomplete   = &problem{status: http.StatusBadRequest, detail: "the body broke off", closeConnection: true}
	errRevoked          = &problem{status: http.StatusUnauthorized, kind: "unauthenticated", detail: "the key or session that this upload was sent with is not valid any more; show one that is", closeConnection: true}
	errClosing          = &problem{status: http.StatusServiceUnavailable, detail: "uploads are being shut down", retryAfter: 5, closeConnection: true}
	errDiskFull         = &problem{status: http.StatusInsufficientStorage, detail: "there is not enough disk space left", retryAfter: 60}
	errTooManyBytes     = &problem{status: http.StatusRequestEntityTooLarge, detail: "there is more than was announced", closeConnection: true}
	errChecksumMismatch = &problem{status: statusChecksumMismatch, detail: "the checksum is another; nothing was added"}
	errSHA256Mismatch   = &problem{status: statusChecksumMismatch, detail: "the file has another sha256 than was announced; the upload was deleted"}
)

// kinds are the kinds of problems that a status says all of. They are part of the API:
// they do not change.
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

// kindRequestTaken is that of a request id which names a task of another file.
const kindRequestTaken = "request-id-taken"

// problemType is the type of a refusal, for clients that tell them apart.
func (u *Uploads) problemType(r *problem) string {
	if u.options.ProblemTypePrefix == "" {
		return "about:blank"
	}
	return u.options.ProblemTypePrefix + firstNonEmpty(r.kind, kindOfStatus[r.status])
}

// diskError lets a client know that a disk is full, and nothing else about it.
func diskError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		full := *errDiskFull
		full.err = err
		return &full
	}
	return err
}

// answer tells a client of an error, as RFC 9457 has it.
func (u *Uploads) writeProblem(w http.ResponseWriter, r *http.Request, id string, err error) {
	var told *problem
	if !errors.As(err, &told) {
		u.options.OnError(id, err)
		told = newProblem(http.StatusInternalServerError, "something is wrong on this side")
	} else if told.err != nil && !errors.Is(told.err, ErrNotFound) {
		u.options.OnError(id, told.err)
	}
	h := w.Header()
	if told.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(told.retryAfter))
	}
	if told.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="cuelight"`)
	}
	if told.closeConnection && r.ProtoMajor == 1 {
		h.Set("Connection", "close")
	}
	if r.Method == http.MethodHead {
		w.WriteHeader(told.status)
		return
	}
	title := firstNonEmpty(u.options.ProblemTitle(firstNonEmpty(told.kind, kindOfStatus[told.status])), http.StatusText(told.status))
	if told.status == statusChecksumMismatch {
		title = "Checksum Mismatch"
	}
	writeJSON(w, told.status, "application/problem+json", map[string]any{
		"type": u.problemType(told), "title": title, "status": told.status, "detail": told.detail,
	})
}

func writeJSON(w http.ResponseWriter, status int, contentType string, value any) {
	body, err := json.Marshal(value)
	if err != nil { // none of the values here can
		status, body = http.StatusInternalServerError, nil
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has gone is not told
}
