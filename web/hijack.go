package web

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"time"
)

// hijack takes the connection of a stream over from net/http, which keeps two goroutines with deep stacks and buffers
// of 10 KiB for as long as a handler runs: some 30 KiB, and most streams are idle. The response has begun by then, in
// chunks. hijack returns nil if the connection must stay with net/http.
func (s *Server) hijack(rec *responseWriter, r *http.Request) *hijackedConn {
	if !isHijackable(r) {
		return nil
	}
	conn, _, err := rec.control.Hijack()
	if err != nil {
		return nil
	}
	h := &hijackedConn{Conn: conn}
	h.server, _ = r.Context().Value(http.ServerContextKey).(*http.Server)
	s.hijacked.Store(h, nil)
	rec.ResponseWriter, rec.control = h, http.NewResponseController(h)
	return h
}

// isHijackable reports whether net/http can give up the connection of a request: one of HTTP/2 carries other requests,
// HTTP/1.0 has no chunks, and the body of a request may still have to be read.
func isHijackable(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.ProtoMinor > 0 && r.ContentLength == 0
}

// serveHijacked writes the rest of a response. Its ctx has the values of the request's context. An idle stream keeps the
// stack that it needs here and in the functions that it calls.
func (s *Server) serveHijacked(ctx context.Context, h *hijackedConn, rec *responseWriter) {
	defer s.activeRequests.Add(-1)
	defer s.hijacked.Delete(h)
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		h.readToEnd()
	}()
	defer func() { <-ctx.Done() }() // until then the goroutine runs
	defer h.close()
	defer func() {
		if panicked := recover(); panicked != nil {
			h.isBroken = true
			s.reportPanic(rec, nil, panicked)
		}
		s.observe(rec)
	}()
	rec.rest(ctx)
}

// closeHijacked closes the connections that net/http does not know any more.
func (s *Server) closeHijacked() {
	s.hijacked.Range(func(h, _ any) bool {
		_ = h.(*hijackedConn).Conn.Close()
		return true
	})
}

// hijackedConn writes the rest of a response in chunks (RFC 9112, section 7.1). It is an http.ResponseWriter with the
// deadlines of the connection.
type hijackedConn struct {
	net.Conn
	server   *http.Server // nil if there is none
	isBroken bool         // the client must not take the response for complete
}

// Header returns nothing: the headers were sent.
func (h *hijackedConn) Header() http.Header { return nil }

// WriteHeader does nothing: the status was sent.
func (h *hijackedConn) WriteHeader(int) {}

// Flush does nothing: each chunk is sent at once.
func (h *hijackedConn) Flush() {}

// Write sends one chunk. An empty chunk would end the response.
func (h *hijackedConn) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := h.writeChunk(p); err != nil {
		h.isBroken = true
		return 0, err
	}
	return len(p), nil
}

func (h *hijackedConn) writeChunk(p []byte) error {
	const overhead = 20 // bytes, at most
	chunk := append(strconv.AppendInt(make([]byte, 0, len(p)+overhead), int64(len(p)), 16), "\r\n"...)
	_, err := h.Conn.Write(append(append(chunk, p...), "\r\n"...))
	return err
}

// readToEnd returns when the client has disconnected or the connection is closed. It ignores what the client sends: the
// header Connection says that the connection will be closed.
func (h *hijackedConn) readToEnd() {
	var err error
	for ignored := make([]byte, 64); err == nil; {
		_, err = h.Conn.Read(ignored)
	}
}

// close ends the response and closes the connection.
func (h *hijackedConn) close() {
	if !h.isBroken {
		_ = h.SetWriteDeadline(time.Now().Add(writeTimeout))
		_ = h.writeChunk(nil)
	}
	_ = h.Conn.Close()
	if h.server != nil && h.server.ConnState != nil {
		h.server.ConnState(h.Conn, http.StateClosed) // net/http does not report it for hijacked connections
	}
}
