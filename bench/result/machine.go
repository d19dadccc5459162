package result

import (
	"context"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// unknown is what could not be found out.
const unknown = "unknown"

// Programs are those whose versions belong to every result: name and argument
// that makes them tell it.
func VersionCommands() map[string][]string {
	return map[string][]string{
		"postgres": {"postgres", "--version"},
		"ffmpeg":   {"ffmpeg", "-version"},
		"node":     {"node", "--version"},
	}
}

// ThisMachine looks at the machine: dir is where the database lies, or will, and
// programs are asked for their versions. A program that is not there, or does
// not answer within seconds, is left out; what else cannot be found out is
// "unknown" or 0.
func DescribeMachine(ctx context.Context, dir string, programs map[string][]string) Machine {
	m := Machine{
		CPU:        orUnknown(cpu()),
		Cores:      min(runtime.NumCPU(), runtime.GOMAXPROCS(0)),
		MemoryMiB:  int(memory() >> 20),
		OS:         runtime.GOOS,
		Arch:       runtime.GOARCH,
		Kernel:     orUnknown(kernel()),
		Filesystem: orUnknown(filesystem(existing(dir))),
		Versions:   map[string]string{"go": runtime.Version()},
	}
	if v := module("github.com/jackc/pgx/v5"); v != "" {
		m.Versions["pgx"] = v
	}
	for name, command := range programs {
		if v := ask(ctx, command); v != "" {
			m.Versions[name] = v
		}
	}
	return m
}

// ask is the version in the first line of what a program says of itself.
func ask(ctx context.Context, command []string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).Output()
	if err != nil {
		return ""
	}
	return firstVersion(string(out))
}

// version is the first word of the first line that has a digit in it at its
// beginning or after a v: of "postgres (PostgreSQL) 15.18 (Debian …)" the 15.18.
func firstVersion(said string) string {
	line, _, _ := strings.Cut(said, "\n")
	for _, word := range strings.Fields(line) {
		if v := strings.TrimPrefix(word, "v"); v != "" && '0' <= v[0] && v[0] <= '9' {
			return v
		}
	}
	return strings.TrimSpace(line)
}

// module is the version of a Go module in this program.
func module(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return strings.TrimPrefix(m.Version, "v")
		}
	}
	return ""
}

// existing is the directory, or the one nearest above it that there is.
func existing(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return dir
	}
	for {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			return real
		}
		if dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

func orUnknown(s string) string {
	if s = strings.TrimSpace(s); s == "" {
		return unknown
	}
	return s
}
