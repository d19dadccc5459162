package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// serverEvent is one message of server-sent events.
type serverEvent struct {
	id    int64
	event string
	data  []byte // valid until the next message
}

// readEvents reads a stream until it ends, for which the error is nil.
func readEvents(r io.Reader, handle func(serverEvent) error) error {
	var e serverEvent
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		switch name, value, _ := bytes.Cut(lines.Bytes(), []byte(": ")); string(name) {
		case "id":
			e.id, _ = strconv.ParseInt(string(value), 10, 64) // 0 is before every event
		case "event":
			e.event = string(value)
		case "data":
			e.data = append(e.data, value...)
		case "": // the end of a message, or a comment
			if e.event != "" || len(e.data) > 0 {
				if err := handle(e); err != nil {
					return err
				}
			}
			e = serverEvent{data: e.data[:0]}
		}
	}
	return lines.Err()
}

// stream is the body of a response, with its connection.
type stream struct {
	io.Reader
	io.Closer
}

// openStream opens a stream that can be read until ctx is done. It does not use an http.Client,
// which would take more memory for each of many streams.
func (s server) openStream(ctx context.Context, path string, lastID int64) (*stream, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", s.address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\n",
		path, s.address, s.secret)
	if lastID > 0 {
		request += fmt.Sprintf("Last-Event-ID: %d\r\n", lastID)
	}
	_, err = io.WriteString(conn, request+"\r\n")
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(bufio.NewReaderSize(conn, 2048), nil)
	}
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &stream{resp.Body, conn}, nil
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
	server
	dropAfter       int               // the most messages until it drops a connection; 0: never
	reconnectWithin time.Duration     // the most time until it connects again
	onEvent         func(data []byte) // nil: nothing
	onOpen          func()            // called for the first connection

	count streamCount
	last  atomic.Int64 // count.Last, for other goroutines
	left  int          // messages until it drops the connection
	drops int
}

// errDropped ends a connection that is dropped on purpose.
var errDropped = errors.New("dropped")

// follow reads the stream until ctx is done, from one connection to the next. It returns what
// should not have happened.
func (f *follower) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		s, err := f.openStream(ctx, "/api/v1/events/stream", f.count.Last)
		if err == nil {
			if f.dropAfter > 0 {
				f.left = 1 + rand.N(f.dropAfter)
			}
			if err = readEvents(s, f.handle); err == nil {
				err = errors.New("the stream ended")
			}
			s.Close()
		}
		if ctx.Err() != nil {
			break
		}
		if !errors.Is(err, errDropped) {
			return err
		}
		f.drops++
		_ = ctxsleep.For(ctx, rand.N(f.reconnectWithin)) // the loop sees that ctx is done
	}
	return nil
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
