package postgres

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// pidFile is the content of postmaster.pid, which the server writes. A killed server
// leaves it behind.
type pidFile struct {
	pid       int    // negative for a server without a postmaster (single-user mode)
	port      string // "5432"; empty early in the start
	socketDir string // empty early in the start
}

// readPidFile returns the zero value if the file does not exist.
func readPidFile(data string) (pidFile, error) {
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if errors.Is(err, os.ErrNotExist) {
		return pidFile{}, nil
	}
	if err != nil {
		return pidFile{}, err
	}
	var p pidFile
	lines := strings.Split(string(text), "\n")
	// An invalid number counts as none: the next server reports it.
	if pid, err := strconv.Atoi(strings.TrimSpace(lines[0])); err == nil {
		p.pid = pid
	}
	if len(lines) > 4 {
		p.port, p.socketDir = lines[3], lines[4]
	}
	return p, nil
}
