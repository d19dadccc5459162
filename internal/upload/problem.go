package upload

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/internal/problem"
)

func badRequest(format string, args ...any) *problem.Problem {
	return problem.New(problem.InvalidRequest, format, args...)
}

// Problems without a body that is still to be read.
var (
	errNotFound         = problem.New(problem.NotFound, "there is no such upload")
	errBusy             = problem.New(problem.UploadBusy, "another request is using this upload").After(time.Second)
	errCompleting       = problem.New(problem.UploadBusy, "the upload is being completed").After(10 * time.Second)
	errDiskFull         = problem.New(problem.DiskFull, "there is not enough disk space").After(time.Minute)
	errEmptyFile        = badRequest("the file is empty")
	errChecksumMismatch = problem.New(problem.ChecksumMismatch, "the checksum differs; nothing was appended")
	errSHA256Mismatch   = problem.New(problem.ChecksumMismatch, "the file has another sha256; the upload was deleted")
)

// Problems that end the reading of the body.
var (
	errTakenOver      = interruption(problem.UploadTakenOver, "another request took this upload over")
	errStalled        = interruption(problem.UploadStalled, "no data arrived for too long")
	errBodyIncomplete = interruption(problem.InvalidRequest, "the body is incomplete")
	errRevoked        = interruption(problem.Unauthenticated,
		"the key or session of this upload is not valid any more; use a valid one")
	errClosing      = interruption(problem.Unavailable, "the server is shutting down").After(5 * time.Second)
	errTooManyBytes = interruption(problem.TooLarge, "the body is longer than announced")
)

func interruption(k problem.Kind, detail string) *problem.Problem {
	return &problem.Problem{Kind: k, Detail: detail, CloseConnection: true}
}

// diskError converts the errors of a full disk to a problem.
func diskError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		full := *errDiskFull
		full.Cause = err
		return &full
	}
	return err
}

// writeProblem responds with an error. It reports internal errors to OnError.
func (u *Uploads) writeProblem(w http.ResponseWriter, r *http.Request, id string, err error) {
	p, ok := errors.AsType[*problem.Problem](err)
	if !ok {
		p = problem.New(problem.Internal, "an internal error occurred")
		p.Cause = err
	}
	if p.Cause != nil {
		u.options.OnError(id, p.Cause)
	}
	p.Write(w, r)
}

func writeJSON(w http.ResponseWriter, status int, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode response: %w", err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone
	return nil
}
