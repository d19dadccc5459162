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
)

// longest is the longest line of a stream that is read: a whole page of HTML fits.
const longest = 4 << 20

// message is one of server-sent events.
type message struct {
	id    int64 // 0 where its id is no number
	event string
	data  []byte // until the next message
}

// messages reads a stream to its end, which is nil.
func messages(r io.Reader, take func(m message) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 2048), longest)
	var m message
	some := false
	for lines.Scan() {
		line := lines.Text()
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "":
			if some {
				if err := take(m); err != nil {
					return err
				}
			}
			m, some = message{data: m.data[:0]}, false
		case name == "id":
			m.id, _ = strconv.ParseInt(value, 10, 64) // versions of pages are no numbers
		case name == "event":
			m.event, some = value, true
		case name == "data":
			m.data, some = append(m.data, value...), true
		}
	}
	return lines.Err()
}

// errAnswer is an answer that is no stream.
type errAnswer int

func (e errAnswer) Error() string { return fmt.Sprintf("answered %d", int(e)) }

// open opens a stream without more machinery than it takes: there are to be many. It
// is read until ctx is done.
func (o order) open(ctx context.Context, path string, last int64) (io.ReadCloser, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", o.Address)
	if err != nil {
		return nil, err
	}
	s := &opened{Conn: c, stop: context.AfterFunc(ctx, func() { c.Close() })}
	var request strings.Builder
	fmt.Fprintf(&request, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\n", path, o.Address, o.Secret)
	if last > 0 {
		fmt.Fprintf(&request, "Last-Event-ID: %d\r\n", last)
	}
	if _, err := io.WriteString(c, request.String()+"\r\n"); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 2048), nil)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if resp.StatusCode != http.StatusOK {
		s.Close()
		return nil, errAnswer(resp.StatusCode)
	}
	s.body = resp.Body
	return s, nil
}

type opened struct {
	net.Conn
	stop func() bool
	body io.Reader
}

func (s *opened) Read(p []byte) (int, error) { return s.body.Read(p) }

func (s *opened) Close() error {
	s.stop()
	return s.Conn.Close()
}

// account is what one stream of all events was told, over all the connections that
// it took: N events after From up to Last, with ids that add up to Sum.
type account struct {
	From, Last int64
	N          int
	Sum        int64
}

// add counts an event, which must come after the last.
func (a *account) add(id int64) error {
	if id <= a.Last {
		return fmt.Errorf("event %d came after %d", id, a.Last)
	}
	a.Last, a.N, a.Sum = id, a.N+1, a.Sum+id
	return nil
}

// follower is a client of the stream of all events.
type follower struct {
	order
	patience int              // it drops a connection after at most so many messages; 0: never
	away     time.Duration    // and comes back within that time
	lags     func(lag string) // is told when events happened; nil: nobody
	ready    func()           // it is connected

	account account
	last    atomic.Int64 // as in account, for others
	left    int          // messages until it drops the connection
	drops   int
	resyncs int
}

// errDropped ends a connection that was dropped on purpose.
var errDropped = errors.New("dropped")

// follow reads the stream until ctx is done, from one connection to the next. An
// error is what should not have happened.
func (f *follower) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		err := f.connection(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, errDropped):
			return err
		}
		f.drops++
		_ = pause(ctx, rand.N(f.away)) // ctx ends the loop
	}
	return nil
}

// connection reads until it is dropped, which it does not survive either.
func (f *follower) connection(ctx context.Context) error {
	s, err := f.open(ctx, "/api/v1/events/stream", f.account.Last)
	if err != nil {
		return err
	}
	defer s.Close()
	if f.patience > 0 {
		f.left = 1 + rand.N(f.patience)
	}
	if err := messages(s, f.take); err != nil {
		return err
	}
	return errors.New("the stream ended")
}

func (f *follower) take(m message) error {
	switch m.event {
	case "open":
		if f.account.From == 0 {
			f.account.From, f.account.Last = m.id, m.id
			f.last.Store(m.id)
			f.ready()
		}
		if m.id != f.account.Last {
			return fmt.Errorf("the stream begins at %d and not at %d", m.id, f.account.Last)
		}
		return nil
	case "resync":
		f.resyncs++
		return errors.New("told to look anew, because it was too slow")
	}
	if f.lags != nil {
		f.lags(string(m.data))
	}
	err := f.account.add(m.id)
	f.last.Store(f.account.Last)
	if f.left--; err == nil && f.left == 0 {
		err = errDropped
	}
	return err
}
