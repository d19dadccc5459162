package web

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"
)

// endIn is how long the last that is sent to a client may take when the server ends.
const endIn = time.Second

// detachable reports whether a request's answer is one in chunks, and nothing is left
// to be read of the request.
func detachable(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.ProtoMinor >= 1 && r.ContentLength == 0
}

// detach takes the stream's connection out of the hands of net/http, which keeps some
// 20 KiB for each that is open: of many streams that is most of what a process has. The
// answer has begun by then, as one in chunks. It returns nil where that cannot be done:
// HTTP/2, and answers that are no connection's, stay where they are.
//
// Afterwards the stream lives until its client is gone or the server drains, and no
// longer with its request, whose principal it keeps.
func (st *stream) detach(r *http.Request) *chunks {
	if !detachable(r) {
		return nil
	}
	conn, _, err := http.NewResponseController(st.w).Hijack()
	if err != nil {
		return nil
	}
	live, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	stop := context.AfterFunc(st.s.live, func() {
		_ = conn.SetWriteDeadline(time.Now().Add(endIn)) // a client that takes nothing
		cancel()
	})
	attached := st.close
	unwatch := st.s.watch(conn, cancel)
	out := &chunks{conn: conn, server: st.s.live}
	st.live, st.w = live, out
	st.close = func() {
		stop()
		unwatch()
		cancel()
		out.close()
		attached()
	}
	return out
}

// goOn writes the rest of a stream that was detached. A panic ends that stream alone, as
// net/http would have it.
func (st *stream) goOn(out *chunks, route string, more rest) {
	defer st.s.underWay.Add(-1)
	defer st.close()
	defer func() {
		if what := recover(); what != nil {
			out.broken = true
			st.s.o.Trouble(route, fmt.Errorf("panic: %v\n%s", what, debug.Stack()))
		}
	}()
	_ = more(st.live) // the client comes back
}

// chunks writes what is left of an answer in chunks (RFC 9112, section 7.1).
type chunks struct {
	conn   net.Conn
	server context.Context // done when the server drains
	broken bool
}

// Header is for http.ResponseWriter: it was sent.
func (c *chunks) Header() http.Header { return make(http.Header) }

// WriteHeader is for http.ResponseWriter: it was sent.
func (c *chunks) WriteHeader(int) {}

// Write sends one chunk. An empty one would end the answer.
func (c *chunks) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := c.send(append(strconv.AppendInt(nil, int64(len(p)), 16), "\r\n"...), p, []byte("\r\n")); err != nil {
		return 0, err
	}
	return len(p), nil
}

// FlushError is for http.ResponseController: everything is sent at once.
func (c *chunks) FlushError() error { return nil }

func (c *chunks) send(parts ...[]byte) error {
	_ = c.conn.SetWriteDeadline(time.Now().Add(writeIn))
	if c.server.Err() != nil { // asked after that: who drains meanwhile has the last word
		_ = c.conn.SetWriteDeadline(time.Now().Add(endIn))
	}
	_, err := c.conn.Write(bytes.Join(parts, nil))
	c.broken = c.broken || err != nil
	return err
}

// close ends the answer, unless the client would take it for what was cut off.
func (c *chunks) close() {
	if !c.broken {
		_ = c.send([]byte("0\r\n\r\n"))
	}
	_ = c.conn.Close()
}
