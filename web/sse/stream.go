// Package sse writes server-sent events, the format text/event-stream of the HTML standard.
//
//	stream := sse.NewStream(w)
//	err := stream.Add(id, "open", data)
//	err = stream.Send()
//
// Add buffers an event and Send writes the buffer, so that several events take one write. A [Cache] encodes each
// event of the store once for all streams.
//
// The package sets no deadlines: the ResponseWriter must limit how long a write may take. It does not subscribe
// to events and does not notice a disconnected client: the context of the request does.
package sse

import (
	"bytes"
	"fmt"
	"net/http"
	"time"

	"github.com/cuelight/cuelight/store"
)

const (
	// ContentType is the media type of a stream.
	ContentType = "text/event-stream"
	// ReconnectDelay is how long a browser waits before it opens a closed stream again.
	ReconnectDelay = 2 * time.Second
	// sendSize is how much a stream buffers before it writes: a client that returns after an outage may have
	// missed many long error messages.
	sendSize = 64 << 10
)

// Stream is a response with events. One goroutine may use it.
type Stream struct {
	w   http.ResponseWriter
	buf bytes.Buffer
}

// NewStream sets the headers of a response that is a stream. It writes nothing before [Stream.Send].
func NewStream(w http.ResponseWriter) *Stream {
	h := w.Header()
	h.Set("Content-Type", ContentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // tells nginx not to buffer the stream
	s := &Stream{w: w}
	fmt.Fprintf(&s.buf, "retry: %d\n\n", ReconnectDelay.Milliseconds())
	return s
}

// Add buffers an event.
func (s *Stream) Add(id int64, name string, data any) error {
	text, err := encode(id, name, data)
	s.buf.Write(text)
	return err
}

// Send writes the buffer, and the headers before it.
func (s *Stream) Send() error {
	_, err := s.w.Write(s.buf.Bytes())
	s.buf = bytes.Buffer{} // an idle stream keeps no memory, and most streams are idle
	if err != nil {
		return err
	}
	return http.NewResponseController(s.w).Flush()
}

// SendEvents writes events of the store.
func (s *Stream) SendEvents(events []store.Event, cache *Cache) error {
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
func (s *Stream) Ping() error {
	s.buf.WriteString(": ping\n\n")
	return s.Send()
}
