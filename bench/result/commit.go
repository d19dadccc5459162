package result

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Commit is the one that is checked out where dir is, with "-dirty" if there is
// more than it, or "unknown". The results of earlier runs are not more.
func HeadCommit(ctx context.Context, dir string) string {
	hash, err := git(ctx, dir, "rev-parse", "HEAD")
	if err != nil || hash == "" {
		return unknown
	}
	changed, err := git(ctx, dir, "status", "--porcelain", "--", ":/", ":(top,exclude)bench/results")
	if err != nil {
		return unknown
	}
	if changed != "" {
		return hash + "-dirty"
	}
	return hash
}

// git writes nothing: status would refresh the index.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "git", args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_OPTIONAL_LOCKS=0")
	out, err := c.Output()
	return strings.TrimSpace(string(out)), err
}
