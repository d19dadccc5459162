package inbox

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
)

// beingWritten says which of the files are open for writing in some process of
// this host, as far as this process may look into others: not into those of
// other accounts unless it is root, and nowhere where there is no /proc.
//
// The kernel gives the name by which a file is known to its process, which may
// live in a container and see it elsewhere. So the last part of the name is
// only what saves looking at every open file; what counts is whether it is the
// same file.
func beingWritten(ctx context.Context, paths []string) map[string]bool {
	wanted := make(map[string][]candidate)
	for _, path := range paths {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue
		}
		if info, err := os.Stat(real); err == nil {
			name := filepath.Base(real)
			wanted[name] = append(wanted[name], candidate{path, info})
		}
	}
	writing := make(map[string]bool)
	if len(wanted) == 0 {
		return writing
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return writing
	}
	for _, p := range processes {
		if ctx.Err() != nil {
			break
		}
		if _, err := strconv.Atoi(p.Name()); err == nil {
			lookInto("/proc/"+p.Name(), wanted, writing)
		}
	}
	return writing
}

type candidate struct {
	path string
	info os.FileInfo
}

// lookInto notes which files one process writes to. Whatever it may not see,
// and whatever is gone by then, it passes over.
func lookInto(process string, wanted map[string][]candidate, writing map[string]bool) {
	dir, err := os.Open(process + "/fd")
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, fd := range names {
		link := process + "/fd/" + fd
		target, err := os.Readlink(link)
		if err != nil {
			continue
		}
		for _, c := range wanted[filepath.Base(target)] {
			info, err := os.Stat(link)
			if err == nil && os.SameFile(info, c.info) && opensForWriting(process+"/fdinfo/"+fd) {
				writing[c.path] = true
			}
		}
	}
}

// opensForWriting reads how a file was opened.
func opensForWriting(fdinfo string) bool {
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
