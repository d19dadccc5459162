package inbox

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
)

// openForWriting returns the paths that a process of this host has open for writing.
// It does not see the processes of other accounts, unless this process is root.
//
// A process in a container knows a file by another path. So findOpenFiles compares only
// the last path element, to limit the number of stat calls, and then the file itself.
func openForWriting(ctx context.Context, paths []string) map[string]bool {
	byName := make(map[string][]candidate)
	for _, path := range paths {
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue
		}
		if info, err := os.Stat(target); err == nil {
			name := filepath.Base(target)
			byName[name] = append(byName[name], candidate{path, info})
		}
	}
	open := make(map[string]bool)
	if len(byName) == 0 {
		return open
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return open
	}
	for _, p := range processes {
		if ctx.Err() != nil {
			break
		}
		if _, err := strconv.Atoi(p.Name()); err == nil {
			findOpenFiles("/proc/"+p.Name(), byName, open)
		}
	}
	return open
}

type candidate struct {
	path string
	info os.FileInfo
}

// findOpenFiles adds the files to open that one process has open for writing. It skips
// everything that it cannot read.
func findOpenFiles(process string, byName map[string][]candidate, open map[string]bool) {
	dir, err := os.Open(process + "/fd")
	if err != nil {
		return
	}
	defer dir.Close()
	fds, _ := dir.Readdirnames(-1)
	for _, fd := range fds {
		link := process + "/fd/" + fd
		target, err := os.Readlink(link)
		if err != nil {
			continue
		}
		for _, c := range byName[filepath.Base(target)] {
			info, err := os.Stat(link)
			if err == nil && os.SameFile(info, c.info) && isOpenForWriting(process+"/fdinfo/"+fd) {
				open[c.path] = true
			}
		}
	}
}

func isOpenForWriting(fdinfo string) bool {
	text, err := os.ReadFile(fdinfo)
	if err != nil {
		return false
	}
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(line, []byte("flags:")); ok {
			flags, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 8, 64)
			return err == nil && int(flags)&(os.O_WRONLY|os.O_RDWR) != 0
		}
	}
	return false
}
