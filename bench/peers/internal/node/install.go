package node

import (
	"bytes"
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
	"strings"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
)

// least is the oldest Node that all of the peers work with.
var least = version{22, 18}

//go:embed runtime
var runtime embed.FS

// find is a Node that is new enough.
func find(ctx context.Context) (path string, err error) {
	if path, err = exec.LookPath("node"); err == nil {
		if v, err := versionOf(ctx, path); err == nil && !v.before(least) {
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
		return "", fmt.Errorf("%w: a Node of %v or later", harness.ErrUnavailable, least)
	}
	return path, nil
}

type version struct{ major, minor int }

func (v version) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

func (v version) before(w version) bool {
	return v.major < w.major || v.major == w.major && v.minor < w.minor
}

func versionOf(ctx context.Context, node string) (v version, err error) {
	out, err := exec.CommandContext(ctx, node, "--version").Output()
	if err != nil {
		return v, err
	}
	_, err = fmt.Sscanf(string(out), "v%d.%d.", &v.major, &v.minor)
	return v, err
}

// packages are the files that say what is to be installed.
var packages = []string{"package.json", "package-lock.json"}

// install makes sure that what the files ask for is in a directory of the cache.
func install(ctx context.Context, name string, files fs.FS) (dir string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w: no place for npm's packages: %w", harness.ErrUnavailable, err)
	}
	hash := sha256.New()
	contents := make(map[string][]byte)
	for _, file := range packages {
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

// installTo installs beside dir and renames, so that dir is there either
// complete or not at all, whoever else does the same.
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
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir, cmd.Stdout, cmd.Stderr = temporary, &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it has children
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	switch err := cmd.Run(); {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("%w: npm ci: %w: %s", harness.ErrUnavailable, err, lastLines(out.String()))
	}
	if err := os.Rename(temporary, dir); err != nil {
		if _, there := os.Stat(dir); there == nil {
			return nil // somebody else was first
		}
		return err
	}
	return nil
}

// lastLines are the end of what a program has said.
func lastLines(text string) string {
	const most = 400
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = "… " + strings.ToValidUTF8(text[len(text)-most:], "")
	}
	return text
}
