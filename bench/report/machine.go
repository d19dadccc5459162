package report

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

const unknown = "unknown"

// facts are the shell commands that print facts about the machine. $1 is the directory of the database.
var facts = map[string]string{
	"processor":   `sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1`,
	"cores":       `nproc`,
	"memory":      `awk '/^MemTotal:/ { printf "%d MiB", $2 / 1024 }' /proc/meminfo`,
	"system":      `uname -srm`,
	"database on": `df --output=fstype,source "$1" | awk 'END { type = $1; $1 = ""; print type " on" $0 }'`,
	"postgres":    `postgres --version | awk '{ print $3 }'`,
	"ffmpeg":      `ffmpeg -version | awk 'NR == 1 { print $3 }'`,
}

// DescribeMachine describes where the benchmark runs, with the filesystem of the database's directory. What cannot be found
// out is "unknown".
func DescribeMachine(ctx context.Context, dir string) map[string]string {
	m := map[string]string{"go": runtime.Version()}
	for name, script := range facts {
		m[name] = cmp.Or(output(ctx, ".", "sh", "-c", script, "sh", dir), unknown)
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
