package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// program is the daemon's: the one that was named, or one that is built for the
// run, when somebody asks for it.
type program struct {
	path string // "" if it is to be built
	dir  string // where that is done, below it; it must be on a disk that programs may run from
	made string // what was made there, to be removed
}

// build compiles it as `make build` does, so that what that has compiled need
// not be compiled again.
func (p *program) build(ctx context.Context) (err error) {
	root := projectDir()
	if root == "" {
		return errors.New("there are no sources here: name a program with -cuelight")
	}
	if p.made, err = os.MkdirTemp(p.dir, "cuelight-bench-program-"); err != nil {
		return err
	}
	path := filepath.Join(p.made, "cuelight")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", path, "./cmd/cuelight")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build cuelight: %w: %s", err, out)
	}
	p.path = path
	return nil
}

// serve is the daemon on a database, with nothing of this process's settings.
func (p *program) serve(ctx context.Context, dir, url string) (*exec.Cmd, error) {
	if p.path == "" {
		if err := p.build(ctx); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(p.path, "serve", "--data-dir", dir, "--database-url", url)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + os.Getenv("TMPDIR")}
	return cmd, nil
}

// remove removes what was built.
func (p *program) remove() error {
	if p.made == "" {
		return nil
	}
	return os.RemoveAll(p.made)
}
