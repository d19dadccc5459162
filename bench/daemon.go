package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
	"github.com/cuelight/cuelight/store"
)

// daemonProgram is the daemon's program: a given one, or one that is built when it is needed.
type daemonProgram struct {
	path     string // "" before it is built
	dir      string // where to build; the disk must allow programs
	buildDir string // what remove removes
}

// command returns the daemon's command on a database, without this process's settings.
func (p *daemonProgram) command(ctx context.Context, dir, url string) (*exec.Cmd, error) {
	if p.path == "" {
		if err := p.build(ctx); err != nil {
			return nil, err
		}
	}
	// The tables of the benchmark are those of stages that do not divide.
	err := harness.WithPool(ctx, url, 0, func(pool *pgxpool.Pool) error {
		_, err := store.New(pool, store.Video()).Migrate(ctx)
		if err == nil {
			err = operators.Migrate(ctx, pool)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make the tables of the daemon: %w", err)
	}
	cmd := exec.Command(p.path, "serve", "--data-dir", dir, "--database-url", url)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + os.Getenv("TMPDIR")}
	return cmd, nil
}

func (p *daemonProgram) build(ctx context.Context) (err error) {
	if p.buildDir, err = os.MkdirTemp(p.dir, "cuelight-bench-program-"); err != nil {
		return err
	}
	path := filepath.Join(p.buildDir, "cuelight")
	if err := proofkit.BuildDaemon(ctx, path); err != nil {
		return fmt.Errorf("build the daemon; -cuelight selects a program: %w", err)
	}
	p.path = path
	return nil
}

func (p *daemonProgram) remove() error {
	if p.buildDir == "" {
		return nil
	}
	return os.RemoveAll(p.buildDir)
}
