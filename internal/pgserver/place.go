package pgserver

import (
	"errors"
	"fmt"
	"os"
)

// settle makes the server's directories and hands them to the cleaner.
func (s *Server) settle() error {
	dir, err := s.tempDir()
	if err != nil {
		return err
	}
	s.dir = dir
	if s.cleaner, err = s.launch(clean, nil, dir); err != nil {
		return errors.Join(err, os.Remove(dir))
	}
	for _, d := range []string{s.data(), s.SocketDir()} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
		if err := s.account.Own(d); err != nil {
			return err
		}
	}
	return nil
}

// tempDir makes a directory: in memory if there is plenty, because making
// files is most of the work of making a database and takes a tenth of the time
// there. $TMPDIR goes first, but may be one that only we can enter, or too deep
// for a socket's path; /tmp is neither.
func (s *Server) tempDir() (string, error) {
	parents := []string{os.TempDir(), "/tmp"}
	if dir, ok := memoryDir(); ok && !s.opts.Durable && os.Getenv("TMPDIR") == "" {
		parents = append([]string{dir}, parents...)
	}
	var errs []error
	for _, parent := range parents {
		dir, err := os.MkdirTemp(parent, "cuelight-pgserver-")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err = s.account.Own(dir); err == nil && len(dir) < 80 && s.account.CanEnter(s.bin, dir) {
			return dir, nil
		}
		errs = append(errs, err, fmt.Errorf("%s does not suit a server run by %s", dir, s.account.Name), os.Remove(dir))
	}
	return "", errors.Join(errs...)
}

// Close ends the server, as Stop with Immediate does, and removes its data.
// Closing twice is allowed.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.release()
	if s.cleaner == nil {
		return err
	}
	s.cleaner.end()
	s.cleaner = nil
	if _, stat := os.Lstat(s.dir); !errors.Is(stat, os.ErrNotExist) {
		err = errors.Join(err, fmt.Errorf("%s could not be removed", s.dir))
	}
	return err
}
