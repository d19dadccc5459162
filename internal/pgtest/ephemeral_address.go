package pgtest

import (
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/cuelight/cuelight/internal/postgres"
)

// TCPURL is the URL of a database on one of several network addresses. With more
// than one, clients choose the server that accepts writes.
func TCPURL(database string, addr ...string) string {
	query := url.Values{"sslmode": {"disable"}}
	if len(addr) > 1 {
		query.Set("target_session_attrs", "read-write")
	}
	return "postgres://" + postgres.Superuser + "@" + strings.Join(addr, ",") +
		"/" + url.PathEscape(database) + "?" + query.Encode()
}

// URL is the address of a database on the Unix socket, for pgx and for psql, as
// the superuser. The database "postgres" always exists.
func (s *Ephemeral) URL(database string) string {
	return postgres.Address(s.SocketDir(), strconv.Itoa(s.port), database)
}

// Addr is the server's network address: the first address of
// [EphemeralOptions].Listen with the port, as [net.Dial] takes it. It is empty for a
// server that does not listen on the network.
func (s *Ephemeral) Addr() string {
	if len(s.opts.Listen) == 0 {
		return ""
	}
	return net.JoinHostPort(s.opts.Listen[0], strconv.Itoa(s.port))
}

// firstPort and lastPort are below the ports that the kernel gives to outgoing
// connections, which could take the port of a stopped server.
const firstPort, lastPort = 20000, 32000

// freePort finds a port that is free on all the addresses.
func freePort(addresses []string) (int, error) {
	if len(addresses) == 0 {
		return 5432, nil // it only names the socket
	}
	var err error
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if err = checkFree(addresses, port); err == nil {
			return port, nil
		}
	}
	return 0, err
}

func checkFree(addresses []string, port int) error {
	for _, a := range addresses {
		l, err := net.Listen("tcp", net.JoinHostPort(a, strconv.Itoa(port)))
		if err != nil {
			return err
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}
