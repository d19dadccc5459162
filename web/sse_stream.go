package web

import (
	"bytes"
	"fmt"
	"net/http"
	"time"

	"github.com/cuelight/cuelight/store"
)

const (
	// eventStreamType is the media type of a stream.
	eventStreamType = "text/event-stream"
	// reconnectDelay is how long a browser waits before it opens a closed stream again.
	reconnectDelay = 2 * time.Second
	// sendSize is how much a stream buffers before it writes: a client that returns after an outage may have
	// missed many long error messages.
	sendSize = 64 << 10
)

// sseStream is a response with server-sent events, the format text/event-stream of the HTML standard. Add buffers an event, and
// Send writes the buffer, so that several events take one write. It sets no deadlines: the ResponseWriter must limit how long a
// write may take. One goroutine may use it.
type sseStream struct {
	w   http.ResponseWriter
	buf bytes.Buffer
}

// newSSEStream sets the headers of a response that is a stream. It writes nothing before [sseStream.Send].
func newSSEStream(w http.ResponseWriter) *sseStream {
	h := w.Header()
	h.Set("Content-Type", eventStreamType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // tells nginx not to buffer the stream
	s := &sseStream{w: w}
	fmt.Fprintf(&s.buf, "retry: %d\n\n", reconnectDelay.Milliseconds())
	return s
}

// Add buffers an event.
func (s *sseStream) Add(id int64, name string, data any) error {
	text, err := encodeEvent(id, name, data)
	s.buf.Write(text)
	return err
}

// Send writes the buffer, and the headers before it.
func (s *sseStream) Send() error {
	_, err := s.w.Write(s.buf.Bytes())
	s.buf = bytes.Buffer{} // an idle stream keeps no memory, and most streams are idle
	if err != nil {
		return err
	}
	return http.NewResponseController(s.w).Flush()
}

// SendEvents writes events of the store.
func (s *sseStream) SendEvents(events []store.Event, cache *eventCache) error {
	if len(events) == 0 {
		return nil
	}
	for _, e := range events {
		text, err := cache.encode(e)
		if err != nil {
			return err
		}
		s.buf.Write(text)
		if s.buf.Len() >= sendSize {
			if err := s.Send(); err != nil {
				return err
			}
		}
	}
	return s.Send()
}

// Ping writes a comment, which shows client and proxies that the connection is open.
func (s *sseStream) Ping() error {
	s.buf.WriteString(": ping\n\n")
	return s.Send()
}
