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
type refusal struct {
	status int
	kind   string // of problem; empty: that of the status
	detail string
	retry  int // seconds, for Retry-After; 0: none
	hangUp bool
	err    error // for this side, if anything
}

func (r *refusal) Error() string { return r.detail }
func (r *refusal) Unwrap() error { return r.err }

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status: status, detail: fmt.Sprintf(format, args...)}
}

var (
	errNoUpload    = &refusal{status: http.StatusNotFound, detail: "there is no such upload", err: ErrNotFound}
	errBusy        = &refusal{status: http.StatusLocked, detail: "another request is adding to this upload", retry: 1}
	errCompleting  = &refusal{status: http.StatusLocked, detail: "all has come, and is being made a file of", retry: 10}
	errTakenOver   = &refusal{status: http.StatusConflict, kind: "upload-taken-over", detail: "another request has taken this upload over", hangUp: true}
	errStalled     = &refusal{status: http.StatusRequestTimeout, detail: "nothing has come for too long", hangUp: true}
	errBrokenOff   = &refusal{status: http.StatusBadRequest, detail: "the body broke off", hangUp: true}
	errRevoked     = &refusal{status: http.StatusUnauthorized, kind: "unauthenticated", detail: "the key or session that this upload was sent with is not valid any more; show one that is", hangUp: true}
	errClosing     = &refusal{status: http.StatusServiceUnavailable, detail: "uploads are being shut down", retry: 5, hangUp: true}
	errDiskFull    = &refusal{status: http.StatusInsufficientStorage, detail: "there is not enough disk space left", retry: 60}
	errTooLong     = &refusal{status: http.StatusRequestEntityTooLarge, detail: "there is more than was announced", hangUp: true}
	errWrongSum    = &refusal{status: statusChecksumMismatch, detail: "the checksum is another; nothing was added"}
	errWrongSHA256 = &refusal{status: statusChecksumMismatch, detail: "the file has another sha256 than was announced; the upload was deleted"}
)

// kinds are the kinds of problems that a status says all of. They are part of the API:
// they do not change.
var kinds = map[int]string{
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
func (u *Uploads) problemType(r *refusal) string {
	if u.o.Problems == "" {
		return "about:blank"
	}
	return u.o.Problems + either(r.kind, kinds[r.status])
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
func (u *Uploads) answer(w http.ResponseWriter, r *http.Request, id string, err error) {
	var told *refusal
	if !errors.As(err, &told) {
		u.o.Trouble(id, err)
		told = refuse(http.StatusInternalServerError, "something is wrong on this side")
	} else if told.err != nil && !errors.Is(told.err, ErrNotFound) {
		u.o.Trouble(id, told.err)
	}
	h := w.Header()
	if told.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(told.retry))
	}
	if told.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="cuelight"`)
	}
	if told.hangUp && r.ProtoMajor == 1 {
		h.Set("Connection", "close")
	}
	if r.Method == http.MethodHead {
		w.WriteHeader(told.status)
		return
	}
	title := either(u.o.Title(either(told.kind, kinds[told.status])), http.StatusText(told.status))
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
