package postgres

import (
	"os"
	"path/filepath"
)

// anyProcessIn reports whether the working directory of any process is dir, as
// that of every process of a server is its cluster. known is false where the
// system does not say.
func anyProcessIn(dir string) (running, known bool) {
	want, err := os.Stat(dir)
	if err != nil {
		return false, false
	}
	cwds, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil || len(cwds) == 0 {
		return false, false
	}
	for _, cwd := range cwds {
		// A process whose directory is unreadable runs as another user. It cannot
		// be the server, which runs as this user, unless this user is root.
		if is, err := os.Stat(cwd); err == nil && os.SameFile(is, want) {
			return true, true
		}
	}
	return false, true
}
