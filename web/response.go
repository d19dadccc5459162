package web

import (
	"io"
	"net/http"
	"time"
)

const (
	// writeIn is how long a client may take for what was written at once.
	writeIn = 30 * time.Second
	// chunk is how much is sent to a client within writeIn: slower than this per
	// half minute is nobody who watches.
	chunk = 256 << 10
)

// response counts what is written, and gives each part of it a time of its own:
// a client that takes nothing is cut off, one that takes long is not.
type response struct {
	http.ResponseWriter
	control *http.ResponseController
	status  int
	bytes   int64
	begun   func() // called before the first byte; nil for nobody
}

// begin notes that an answer with a status is about to be written.
func (r *response) begin(status int) {
	if r.status == 0 {
		r.status = status
		if r.begun != nil {
			r.begun()
		}
	}
}

func newResponse(w http.ResponseWriter) *response {
	r := &response{ResponseWriter: w, control: http.NewResponseController(w)}
	// The connection may have had a deadline with its last request. Where there
	// are none, whoever serves this has others.
	_ = r.control.SetWriteDeadline(time.Time{})
	return r
}

// Unwrap is for http.ResponseController.
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *response) pace() { _ = r.control.SetWriteDeadline(time.Now().Add(writeIn)) }

// WriteHeader notes the status.
func (r *response) WriteHeader(status int) {
	if status >= 200 {
		r.begin(status)
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write counts.
func (r *response) Write(p []byte) (n int, err error) {
	r.begin(http.StatusOK)
	for first := true; first || len(p) > 0; first = false {
		part := p[:min(len(p), chunk)]
		r.pace()
		m, err := r.ResponseWriter.Write(part)
		n, p = n+m, p[m:]
		r.bytes += int64(m)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// ReadFrom lets the kernel send files by itself, a part at a time.
func (r *response) ReadFrom(from io.Reader) (n int64, err error) {
	r.begin(http.StatusOK)
	limited, ok := from.(*io.LimitedReader)
	if !ok {
		limited = &io.LimitedReader{R: from, N: 1<<63 - 1}
	}
	for limited.N > 0 {
		r.pace()
		part := min(limited.N, chunk)
		m, err := io.CopyN(r.ResponseWriter, limited.R, part)
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
func (r *response) Flush() { _ = r.FlushError() }

// FlushError is Flush for http.ResponseController.
func (r *response) FlushError() error {
	r.begin(http.StatusOK)
	r.pace()
	return r.control.Flush()
}
