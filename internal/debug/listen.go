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

// listen opens the listener of an address, if it is one that only this host can
// reach.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	if path, ok := socketPath(addr); ok {
		return listenAtSocket(ctx, &lc, path)
	}
	if err := Check(addr); err != nil {
		return nil, err
	}
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	// The name localhost is what this host's tables say it is.
	if at, ok := l.Addr().(*net.TCPAddr); !ok || !at.IP.IsLoopback() {
		return nil, errors.Join(ErrNotLocal, l.Close())
	}
	return l, nil
}

// Check says whether an address is one that only this host can reach, without
// listening at it. Its errors are those of [Run].
func Check(addr string) error {
	if _, ok := socketPath(addr); ok {
		return nil
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	if host == "" || !localName(host) {
		return ErrNotLocal
	}
	return nil
}

func socketPath(addr string) (string, bool) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return path, path != ""
	}
	return addr, strings.HasPrefix(addr, "/")
}

// socket is a listener at a unix socket. It removes the file that it made.
type socket struct {
	net.Listener
	path string
	made fs.FileInfo
}

// Addr is where the socket is, not where it was made.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

func (s *socket) Close() error {
	err := s.Listener.Close()
	// Somebody else may have taken the place.
	if there, statErr := os.Lstat(s.path); statErr == nil && os.SameFile(there, s.made) {
		err = errors.Join(err, os.Remove(s.path))
	}
	return err
}

// listenAtSocket makes a socket that is this user's alone from the first moment on:
// in a directory that nobody else may enter, from which it is moved to its place.
// One that a process left behind there gives way.
func listenAtSocket(ctx context.Context, lc *net.ListenConfig, path string) (net.Listener, error) {
	if err := vacant(ctx, path); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".d")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	made := filepath.Join(dir, "s")
	l, err := lc.Listen(ctx, "unix", made)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	s := &socket{Listener: l, path: path}
	err = os.Chmod(made, 0o600)
	if err == nil {
		s.made, err = os.Lstat(made)
	}
	if err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return s, nil
}

// vacant reports why a socket cannot be made at path.
func vacant(ctx context.Context, path string) error {
	there, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if there.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%w, and no socket", fs.ErrExist)
	}
	d := net.Dialer{Timeout: time.Second}
	if c, err := d.DialContext(ctx, "unix", path); err == nil {
		return errors.Join(errors.New("another process listens there"), c.Close())
	}
	return nil
}
