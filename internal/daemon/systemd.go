package daemon

import (
	"net"
	"strconv"
	"time"

	"github.com/cuelight/cuelight/internal/dbconn"
)

// notifyTimeout is the timeout of a message to the service manager.
const notifyTimeout = 100 * time.Millisecond

// systemd notifies the service manager of units with Type=notify. It does nothing for a
// process that no service manager started.
type systemd struct {
	conn     net.Conn
	watchdog time.Duration // how often to notify it; 0 for never
}

func newSystemd(env dbconn.Environment) *systemd {
	s := &systemd{}
	address := env.Get("NOTIFY_SOCKET")
	if address == "" {
		return s
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		return s // the variable was inherited from another service
	}
	s.conn = conn
	usec, err := strconv.ParseInt(env.Get("WATCHDOG_USEC"), 10, 64)
	if err == nil && usec > 0 && usec < int64(24*time.Hour/time.Microsecond) {
		s.watchdog = time.Duration(usec) * time.Microsecond / 3
	}
	return s
}

// notify sends lines such as READY=1. Its errors do not matter: a manager that does not
// read must not stop the work.
func (s *systemd) notify(lines string) {
	if s.conn == nil {
		return
	}
	if s.conn.SetWriteDeadline(time.Now().Add(notifyTimeout)) == nil {
		_, _ = s.conn.Write([]byte(lines))
	}
}

func (s *systemd) close() {
	if s.conn != nil {
		s.conn.Close()
	}
}
