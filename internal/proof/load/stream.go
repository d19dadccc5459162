package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// maxLine is the longest line of a stream that is read. A whole page of HTML fits.
const maxLine = 4 << 20

// serverEvent is one message of server-sent events.
type serverEvent struct {
	id    int64 // 0 if it is not a number
	event string
	data  []byte // valid until the next message
}

// readEvents reads a stream until it ends, for which the error is nil.
func readEvents(r io.Reader, handle func(serverEvent) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 2048), maxLine)
	var e serverEvent
	isEmpty := true
	for lines.Scan() {
		line := lines.Text()
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "":
			if !isEmpty {
				if err := handle(e); err != nil {
					return err
				}
			}
			e, isEmpty = serverEvent{data: e.data[:0]}, true
		case name == "id":
			e.id, _ = strconv.ParseInt(value, 10, 64) // the versions of pages are not numbers
		case name == "event":
			e.event, isEmpty = value, false
		case name == "data":
			e.data, isEmpty = append(e.data, value...), false
		}
	}
	return lines.Err()
}

// openStream opens a stream that can be read until ctx is done. It does not use an http.Client,
// which would take more memory for each of many streams.
func (o clientOptions) openStream(ctx context.Context, path string, lastID int64) (io.ReadCloser, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", o.Address)
	if err != nil {
		return nil, err
	}
	s := &stream{Conn: conn, stop: context.AfterFunc(ctx, func() { conn.Close() })}
	request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\n",
		path, o.Address, o.Secret)
	if lastID > 0 {
		request += fmt.Sprintf("Last-Event-ID: %d\r\n", lastID)
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 2048), nil)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if resp.StatusCode != http.StatusOK {
		s.Close()
		return nil, errors.New(resp.Status)
	}
	s.body = resp.Body
	return s, nil
}

type stream struct {
	net.Conn
	stop func() bool
	body io.Reader
}

// Read reads the body of the response.
func (s *stream) Read(p []byte) (int, error) { return s.body.Read(p) }

// Close closes the connection.
func (s *stream) Close() error {
	s.stop()
	return s.Conn.Close()
}

// streamCount is what one stream of all events received over all its connections: N events after
// From up to Last, with ids that add up to Sum.
type streamCount struct {
	From, Last int64
	N          int
	Sum        int64
}

// add counts an event. Its id must be greater than the last one.
func (c *streamCount) add(id int64) error {
	if id <= c.Last {
		return fmt.Errorf("event %d came after %d", id, c.Last)
	}
	c.Last, c.N, c.Sum = id, c.N+1, c.Sum+id
	return nil
}

// follower is a client of the stream of all events.
type follower struct {
	clientOptions
	dropAfter       int               // the most messages until it drops a connection; 0: never
	reconnectWithin time.Duration     // the most time until it connects again
	onEvent         func(data []byte) // nil: nothing
	onOpen          func()            // called for the first connection

	count   streamCount
	last    atomic.Int64 // count.Last, for other goroutines
	left    int          // messages until it drops the connection
	drops   int
	resyncs int
}

// errDropped ends a connection that is dropped on purpose.
var errDropped = errors.New("dropped")

// follow reads the stream until ctx is done, from one connection to the next. It returns what
// should not have happened.
func (f *follower) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		err := f.readConnection(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, errDropped):
			return err
		}
		f.drops++
		_ = ctxsleep.For(ctx, rand.N(f.reconnectWithin)) // the loop sees that ctx is done
	}
	return nil
}

// readConnection reads one connection until it ends, which is an error.
func (f *follower) readConnection(ctx context.Context) error {
	s, err := f.openStream(ctx, "/api/v1/events/stream", f.count.Last)
	if err != nil {
		return err
	}
	defer s.Close()
	if f.dropAfter > 0 {
		f.left = 1 + rand.N(f.dropAfter)
	}
	if err := readEvents(s, f.handle); err != nil {
		return err
	}
	return errors.New("the stream ended")
}

func (f *follower) handle(e serverEvent) error {
	switch e.event {
	case "open":
		if f.count.From == 0 {
			f.count.From, f.count.Last = e.id, e.id
			f.last.Store(e.id)
			f.onOpen()
		}
		if e.id != f.count.Last {
			return fmt.Errorf("the stream begins at event %d, want %d", e.id, f.count.Last)
		}
		return nil
	case "resync":
		f.resyncs++
		return errors.New("the server asked for a resync, because the client was too slow")
	}
	if f.onEvent != nil {
		f.onEvent(e.data)
	}
	err := f.count.add(e.id)
	f.last.Store(f.count.Last)
	if f.left--; err == nil && f.left == 0 {
		err = errDropped
	}
	return err
}
