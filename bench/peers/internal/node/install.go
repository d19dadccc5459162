package node

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/internal/childproc"
)

// oldestVersion is the oldest Node that all peers support.
var oldestVersion = []int{22, 18}

//go:embed runtime
var runtime embed.FS

// findNode returns the path of a Node that is new enough. It installs one if necessary.
func findNode(ctx context.Context) (path string, err error) {
	if path, err = exec.LookPath("node"); err == nil {
		if out, err := exec.CommandContext(ctx, path, "--version").Output(); err == nil && isNewEnough(out) {
			return path, nil
		}
	}
	files, err := fs.Sub(runtime, "runtime")
	if err != nil {
		return "", err
	}
	dir, err := install(ctx, "node", files)
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "node_modules", ".bin", "node")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: Node %d.%d or later", harness.ErrUnavailable, oldestVersion[0], oldestVersion[1])
	}
	return path, nil
}

// isNewEnough reports whether the output of node --version is a version that all peers support.
func isNewEnough(version []byte) bool {
	v := make([]int, 2)
	_, err := fmt.Sscanf(string(version), "v%d.%d.", &v[0], &v[1])
	return err == nil && slices.Compare(v, oldestVersion) >= 0
}

// install installs what package.json and package-lock.json request into a directory of the
// user's cache, unless that exists, and returns the directory.
func install(ctx context.Context, name string, files fs.FS) (dir string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w: no cache directory for npm's packages: %w", harness.ErrUnavailable, err)
	}
	hash := sha256.New()
	contents := make(map[string][]byte)
	for _, file := range []string{"package.json", "package-lock.json"} {
		text, err := fs.ReadFile(files, file)
		if err != nil {
			return "", err
		}
		contents[file] = text
		hash.Write(text)
	}
	dir = filepath.Join(cache, "cuelight-bench", name+"-"+hex.EncodeToString(hash.Sum(nil))[:16])
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := installTo(ctx, dir, contents); err != nil {
		return "", fmt.Errorf("install %s: %w", name, err)
	}
	return dir, nil
}

// installTo installs into a temporary directory and renames it: dir is complete or does not
// exist, even if several processes install at once.
func installTo(ctx context.Context, dir string, contents map[string][]byte) (err error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fmt.Errorf("%w: %w", harness.ErrUnavailable, err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(filepath.Dir(dir), ".new-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	for file, text := range contents {
		if err := os.WriteFile(filepath.Join(temporary, file), text, 0o644); err != nil {
			return err
		}
	}
	cmd := exec.Command(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = temporary
	switch err := childproc.Run(ctx, cmd, childproc.Options{}); {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("%w: npm ci: %s", harness.ErrUnavailable, endOf(err.Error()))
	}
	if err := os.Rename(temporary, dir); err != nil {
		if _, statErr := os.Stat(dir); statErr == nil {
			return nil // another process was first
		}
		return err
	}
	return nil
}

// endOf returns the end of a program's output, in one line.
func endOf(text string) string {
	const limit = 400
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > limit {
		text = "… " + strings.ToValidUTF8(text[len(text)-limit:], "")
	}
	return text
}
