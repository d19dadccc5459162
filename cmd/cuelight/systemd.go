package main

import (
	"net"
	"strconv"
	"time"

	"github.com/cuelight/cuelight/internal/dbconn"
)

// tellWithin is how long a message to the service manager may take.
const tellWithin = 100 * time.Millisecond

// systemd is the service manager's ear, for units of Type=notify. Without one
// it does nothing.
type systemd struct {
	conn     net.Conn
	watchdog time.Duration // how often it wants to hear from us; 0 for never
}

func newSystemd(env dbconn.Environment) *systemd {
	s := &systemd{}
	address := env.Get("NOTIFY_SOCKET")
	if address == "" {
		return s
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		return s // the variable was inherited from somebody else's service
	}
	s.conn = conn
	if usec, err := strconv.ParseInt(env.Get("WATCHDOG_USEC"), 10, 64); err == nil && usec > 0 && usec < int64(24*time.Hour/time.Microsecond) {
		s.watchdog = time.Duration(usec) * time.Microsecond / 3
	}
	return s
}

// tell sends a line such as READY=1. Nobody answers, and nothing depends on it;
// least of all may a manager that does not listen stop the work.
func (s *systemd) tell(lines string) {
	if s.conn == nil {
		return
	}
	if s.conn.SetWriteDeadline(time.Now().Add(tellWithin)) == nil {
		_, _ = s.conn.Write([]byte(lines))
	}
}

func (s *systemd) close() {
	if s.conn != nil {
		s.conn.Close()
	}
}
