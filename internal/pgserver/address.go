package pgserver

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/cuelight/cuelight/internal/postgres"
)

// URL is the address of a database on the Unix socket, for pgx and for psql, as
// the superuser. The database "postgres" is there from the beginning.
func (s *Server) URL(database string) string {
	return postgres.Address(s.SocketDir(), strconv.Itoa(s.port), database)
}

// Addr is where the server is on the network: the first address of
// [Options].Listen with the port, as [net.Dial] takes it. It is empty for a
// server that does not listen there.
func (s *Server) Addr() string {
	if len(s.opts.Listen) == 0 {
		return ""
	}
	return net.JoinHostPort(s.opts.Listen[0], strconv.Itoa(s.port))
}

// TCPURL is the address of a database that is to be found at addr, or at one of
// several: then at the one that can be written to.
func TCPURL(database string, addr ...string) string {
	query := url.Values{"sslmode": {"disable"}}
	if len(addr) > 1 {
		query.Set("target_session_attrs", "read-write")
	}
	return "postgres://" + postgres.Superuser + "@" + strings.Join(addr, ",") +
		"/" + url.PathEscape(database) + "?" + query.Encode()
}

// Ports below those that the kernel gives to connections, which could take one
// while its server is down.
const firstPort, lastPort = 20000, 32000

// freePort finds a port that nobody has on any of the addresses.
func freePort(addresses []string) (int, error) {
	if len(addresses) == 0 {
		return 5432, nil // it only names the socket's file
	}
	var err error
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if err = isFree(addresses, port); err == nil {
			return port, nil
		}
	}
	return 0, err
}

func isFree(addresses []string, port int) error {
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

// rules is who may come in, as pg_hba.conf has it.
func (o Options) rules() (string, error) {
	var b strings.Builder
	b.WriteString("local all all trust\nlocal replication all trust\n")
	if len(o.Listen) == 0 {
		return b.String(), nil
	}
	networks := []string{"127.0.0.1/32", "::1/128"}
	for _, a := range o.Listen {
		addr, err := netip.ParseAddr(a)
		if err != nil {
			return "", err
		}
		networks = append(networks, netip.PrefixFrom(addr, addr.BitLen()).String())
	}
	for _, n := range append(networks, o.Trust...) {
		if _, err := netip.ParsePrefix(n); err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "host all all %s trust\nhost replication all %[1]s trust\n", n)
	}
	return b.String(), nil
}
