package debug

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// listen opens a listener on an address that only this host can reach.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	if path, ok := socketPath(addr); ok {
		return listenOnSocket(ctx, &lc, path)
	}
	if err := Check(addr); err != nil {
		return nil, err
	}
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	// The host's configuration decides about the address of the name localhost.
	if tcp, ok := l.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		return nil, errors.Join(ErrNotLocal, l.Close())
	}
	return l, nil
}

// Check returns an error of [Run] if other hosts can reach the address. It does not
// listen.
func Check(addr string) error {
	if _, ok := socketPath(addr); ok {
		return nil
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	if host == "" || !isLocalName(host) {
		return ErrNotLocal
	}
	return nil
}

// socketPath is the path of a Unix socket, if the address is one.
func socketPath(addr string) (string, bool) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return path, path != ""
	}
	return addr, strings.HasPrefix(addr, "/")
}

// socket is a listener on a Unix socket that removes its own file.
type socket struct {
	net.Listener
	path string
	file fs.FileInfo
}

// Addr is the final path of the socket, not that of its creation.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

// Close ends the listener and removes the socket from the file system.
func (s *socket) Close() error {
	err := s.Listener.Close()
	// Another process may have replaced the file.
	if current, statErr := os.Lstat(s.path); statErr == nil && os.SameFile(current, s.file) {
		err = errors.Join(err, os.Remove(s.path))
	}
	return err
}

// listenOnSocket creates a socket that only this user can open at any time: in a private
// directory, from which it is moved to its path. It replaces a stale socket.
func listenOnSocket(ctx context.Context, lc *net.ListenConfig, path string) (net.Listener, error) {
	if err := checkPath(ctx, path); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".d")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	temporary := filepath.Join(dir, "s")
	l, err := lc.Listen(ctx, "unix", temporary)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	s := &socket{Listener: l, path: path}
	err = os.Chmod(temporary, 0o600)
	if err == nil {
		s.file, err = os.Lstat(temporary)
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return s, nil
}

// checkPath returns the reason why a socket cannot be created at path.
func checkPath(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%w and is not a socket", fs.ErrExist)
	}
	d := net.Dialer{Timeout: time.Second}
	if c, err := d.DialContext(ctx, "unix", path); err == nil {
		return errors.Join(errors.New("another process listens on it"), c.Close())
	}
	return nil
}
