package result

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

const unknown = "unknown"

// VersionCommands returns the commands that print versions for every result, by program.
func VersionCommands() map[string][]string {
	return map[string][]string{
		"postgres": {"postgres", "--version"},
		"ffmpeg":   {"ffmpeg", "-version"},
		"node":     {"node", "--version"},
	}
}

// factCommands are the shell commands that print a fact about the machine, by operating system.
// $1 is the directory of the database. Memory is in KiB.
var factCommands = map[string]struct{ cpu, memory, filesystem string }{
	"linux": {
		cpu:        `sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1`,
		memory:     `awk '/^MemTotal:/ { print $2 }' /proc/meminfo`,
		filesystem: `df --output=fstype,source "$1" | awk 'END { type = $1; $1 = ""; print type " on" $0 }'`,
	},
	"darwin": {
		cpu:        `sysctl -n machdep.cpu.brand_string`,
		memory:     `expr "$(sysctl -n hw.memsize)" / 1024`,
		filesystem: `d=$(df -P "$1" | awk 'END { print $1 }'); mount | sed -n "s|^$d on .* (\([^,]*\).*|\1 on $d|p"`,
	},
}

// DescribeMachine describes the machine. dir is the directory of the database and need not
// exist. Programs that are missing or do not answer are omitted; other unknown values are
// "unknown" or 0.
func DescribeMachine(ctx context.Context, dir string, versionCommands map[string][]string) Machine {
	printed := func(command ...string) string {
		out, _ := output(ctx, ".", command) // an error leaves the fact unknown
		return out
	}
	facts, parent := factCommands[runtime.GOOS], existingParent(dir)
	kib, _ := strconv.Atoi(printed("sh", "-c", facts.memory))
	m := Machine{
		CPU:        cmp.Or(printed("sh", "-c", facts.cpu), runtime.GOARCH),
		Cores:      min(runtime.NumCPU(), runtime.GOMAXPROCS(0)),
		MemoryMiB:  kib >> 10,
		OS:         runtime.GOOS,
		Arch:       runtime.GOARCH,
		Kernel:     cmp.Or(printed("uname", "-sr"), unknown),
		Filesystem: cmp.Or(printed("sh", "-c", facts.filesystem, "sh", parent), unknown),
		Versions:   map[string]string{"go": runtime.Version()},
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/jackc/pgx/v5" {
				m.Versions["pgx"] = strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	for name, command := range versionCommands {
		if out, err := output(ctx, ".", command); err == nil {
			m.Versions[name] = firstVersion(out)
		}
	}
	return m
}

// output runs a command for a minute at most and returns its trimmed output. It tells git not
// to write: its status would refresh the index.
func output(ctx context.Context, dir string, command []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_OPTIONAL_LOCKS=0")
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// firstVersion returns the first word of the first line that starts with a digit, or with v and
// a digit: 15.18 of "postgres (PostgreSQL) 15.18 (Debian …)".
func firstVersion(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	for _, word := range strings.Fields(line) {
		if v := strings.TrimPrefix(word, "v"); v != "" && '0' <= v[0] && v[0] <= '9' {
			return v
		}
	}
	return strings.TrimSpace(line)
}

// existingParent returns the directory, or its nearest parent that exists.
func existingParent(dir string) string {
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

// HeadCommit returns the commit that is checked out in dir, with "-dirty" if there are changes
// outside of the results of earlier runs, or "unknown".
func HeadCommit(ctx context.Context, dir string) string {
	hash, err := output(ctx, dir, []string{"git", "rev-parse", "HEAD"})
	if err != nil || hash == "" {
		return unknown
	}
	changes, err := output(ctx, dir,
		[]string{"git", "status", "--porcelain", "--", ":/", ":(top,exclude)bench/results"})
	switch {
	case err != nil:
		return unknown
	case changes != "":
		return hash + "-dirty"
	}
	return hash
}
