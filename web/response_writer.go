package web

import (
	"io"
	"net/http"
	"time"

	"github.com/cuelight/cuelight/internal/access"
)

// A client has writeTimeout to receive writeChunk bytes. A slow client is served, one that reads nothing is
// disconnected.
const (
	writeTimeout = 30 * time.Second
	writeChunk   = 256 << 10
)

// responseWriter counts the bytes of a response and gives each chunk a deadline of its own.
type responseWriter struct {
	http.ResponseWriter
	control         *http.ResponseController
	start           time.Time
	request         Request // set by describe
	status          int
	bytes           int64
	beforeFirstByte func() // may be nil
}

func newResponseWriter(w http.ResponseWriter) *responseWriter {
	r := &responseWriter{ResponseWriter: w, control: http.NewResponseController(w), start: time.Now()}
	_ = r.control.SetWriteDeadline(time.Time{}) // of the connection's previous request; tests have writers without
	return r
}

// describe notes what is known of a request before it ends, after the mux has set its pattern.
func (r *responseWriter) describe(request *http.Request) {
	r.request = Request{
		Method: request.Method, Route: request.Pattern, Principal: access.PrincipalOf(request.Context()).Name,
	}
}

// Unwrap is for http.ResponseController.
func (r *responseWriter) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader records the status.
func (r *responseWriter) WriteHeader(status int) {
	if status >= 200 {
		r.recordStatus(status)
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write counts the bytes.
func (r *responseWriter) Write(p []byte) (n int, err error) {
	r.recordStatus(http.StatusOK)
	for first := true; first || len(p) > 0; first = false {
		part := p[:min(len(p), writeChunk)]
		r.extendDeadline()
		m, err := r.ResponseWriter.Write(part)
		n, p = n+m, p[m:]
		r.bytes += int64(m)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// ReadFrom lets the kernel send a file directly (sendfile), one chunk at a time.
func (r *responseWriter) ReadFrom(from io.Reader) (n int64, err error) {
	r.recordStatus(http.StatusOK)
	limited, ok := from.(*io.LimitedReader)
	if !ok {
		limited = &io.LimitedReader{R: from, N: 1<<63 - 1}
	}
	for limited.N > 0 {
		r.extendDeadline()
		m, err := io.CopyN(r.ResponseWriter, limited.R, min(limited.N, writeChunk))
		n, limited.N = n+m, limited.N-m
		r.bytes += m
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Flush sends what was written.
func (r *responseWriter) Flush() { _ = r.FlushError() }

// FlushError is Flush for http.ResponseController.
func (r *responseWriter) FlushError() error {
	r.recordStatus(http.StatusOK)
	r.extendDeadline()
	return r.control.Flush()
}

func (r *responseWriter) recordStatus(status int) {
	if r.status != 0 {
		return
	}
	r.status = status
	if r.beforeFirstByte != nil {
		r.beforeFirstByte()
		r.beforeFirstByte = nil
	}
}

func (r *responseWriter) extendDeadline() {
	_ = r.control.SetWriteDeadline(time.Now().Add(writeTimeout))
}
