package postgres

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// pidFile is what a server writes about itself into postmaster.pid. It is left
// behind by one that was killed.
type pidFile struct {
	text      string
	pid       int    // negative for a server without a postmaster (single-user mode)
	port      string // "5432", or empty before the server has got that far
	socketDir string // or empty, likewise
}

// readPidFile returns the zero value if there is none.
func readPidFile(data string) (pidFile, error) {
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if errors.Is(err, os.ErrNotExist) {
		return pidFile{}, nil
	}
	if err != nil {
		return pidFile{}, err
	}
	p := pidFile{text: string(text)}
	lines := strings.Split(p.text, "\n")
	// An unreadable one is like none: the server will judge.
	if pid, err := strconv.Atoi(strings.TrimSpace(lines[0])); err == nil {
		p.pid = pid
	}
	if len(lines) > 4 {
		p.port, p.socketDir = lines[3], lines[4]
	}
	return p, nil
}
