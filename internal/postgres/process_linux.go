package postgres

import (
	"os"
	"path/filepath"
)

// anyProcessIn reports whether a process of any kind works in dir, as every
// process of a server does in its cluster. known is false if that cannot be
// told.
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
		// What we may not look at belongs to somebody who could not be the
		// server: it has our own user, or we are root.
		if is, err := os.Stat(cwd); err == nil && os.SameFile(is, want) {
			return true, true
		}
	}
	return false, true
}
