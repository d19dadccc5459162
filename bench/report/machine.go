package report

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Machine is where the benchmark ran. What cannot be found out is "unknown" or 0.
type Machine struct {
	CPU        string            `json:"cpu"`
	Cores      int               `json:"cores"` // that this process may use
	MemoryMiB  int               `json:"memory_mib"`
	Kernel     string            `json:"kernel"`
	Filesystem string            `json:"filesystem"` // of the database
	Versions   map[string]string `json:"versions"`   // go, postgres, ffmpeg
}

const unknown = "unknown"

// DescribeMachine describes the machine, with the filesystem of the database's directory, which need not exist.
func DescribeMachine(ctx context.Context, dir string) Machine {
	shell := func(script string) string { return output(ctx, ".", "sh", "-c", script, "sh", existingParent(dir)) }
	kib, _ := strconv.Atoi(shell(`awk '/^MemTotal:/ { print $2 }' /proc/meminfo`))
	m := Machine{
		CPU:       cmp.Or(shell(`sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1`), runtime.GOARCH),
		Cores:     min(runtime.NumCPU(), runtime.GOMAXPROCS(0)),
		MemoryMiB: kib >> 10,
		Kernel:    cmp.Or(output(ctx, ".", "uname", "-sr"), unknown),
		Filesystem: cmp.Or(shell(`df --output=fstype,source "$1" | awk 'END { type = $1; $1 = ""; print type " on" $0 }'`),
			unknown),
		Versions: map[string]string{"go": runtime.Version()},
	}
	for name, option := range map[string]string{"postgres": "--version", "ffmpeg": "-version"} {
		if v := firstVersion(output(ctx, ".", name, option)); v != "" {
			m.Versions[name] = v
		}
	}
	return m
}

// output runs a command for a minute at most and returns its trimmed output, which is empty if it fails. It tells git not
// to write: its status would refresh the index.
func output(ctx context.Context, dir, program string, args ...string) string {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_OPTIONAL_LOCKS=0")
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// firstVersion returns the first word that starts with a digit: 15.18 of "postgres (PostgreSQL) 15.18 (Debian …)".
func firstVersion(text string) string {
	for _, word := range strings.Fields(text) {
		if '0' <= word[0] && word[0] <= '9' {
			return word
		}
	}
	return ""
}

// existingParent returns the directory, or its nearest parent that exists.
func existingParent(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// HeadCommit returns the commit that is checked out in dir, with "-dirty" if there are changes
// outside of the results of earlier runs, or "unknown".
func HeadCommit(ctx context.Context, dir string) string {
	hash := output(ctx, dir, "git", "rev-parse", "HEAD")
	if hash == "" {
		return unknown
	}
	if output(ctx, dir, "git", "status", "--porcelain", "--", ":/", ":(top,exclude)bench/results") != "" {
		hash += "-dirty"
	}
	return hash
}
