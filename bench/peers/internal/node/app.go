package node

import (
	"context"
	_ "embed"
	"fmt"
	"io/fs"
	"os/exec"

	"github.com/cuelight/cuelight/bench/harness"
)

// App is a peer for Node.
type App struct {
	Name   string
	Files  fs.FS  // has package.json, package-lock.json and the script
	Script string // its file name
}

// config is the first line that a script receives.
type config struct {
	URL    string `json:"url"`
	Mode   string `json:"do"`    // "setup", "work", or "submit"
	Slots  int    `json:"slots"` // per stage
	WorkMS int64  `json:"workMs"`
}

// Setup installs the packages of the app and lets it create its tables.
func (a App) Setup(ctx context.Context, url string) error {
	p, err := a.start(ctx, config{URL: url, Mode: "setup"}, harness.Options{})
	if err == nil {
		err = p.Stop(ctx)
	}
	if err != nil {
		return fmt.Errorf("create tables of %s: %w", a.Name, err)
	}
	return nil
}

// Start starts the app and returns when it is notified of new tasks.
func (a App) Start(ctx context.Context, url string, o harness.Options) (*Process, error) {
	c := config{URL: url, Mode: "work", Slots: max(1, o.Slots), WorkMS: o.WorkTime.Milliseconds()}
	return a.start(ctx, c, o)
}

// StartSubmitter starts the app in a mode that only submits tasks.
func (a App) StartSubmitter(ctx context.Context, url string) (*Process, error) {
	return a.start(ctx, config{URL: url, Mode: "submit"}, harness.Options{})
}

func (a App) start(ctx context.Context, c config, o harness.Options) (*Process, error) {
	node, err := findNode(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := install(ctx, a.Name, a.Files)
	if err != nil {
		return nil, err
	}
	cmd, err := a.command(node, dir)
	if err != nil {
		return nil, err
	}
	p, err := startProcess(ctx, cmd, c, o)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", a.Name, err)
	}
	return p, nil
}

//go:embed host.mjs
var host string

// command returns the command of the script. Node looks for modules in the working directory.
func (a App) command(node, dir string) (*exec.Cmd, error) {
	script, err := fs.ReadFile(a.Files, a.Script)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(node, "--input-type=module", "--eval", host+string(script))
	cmd.Dir = dir
	return cmd, nil
}
