package node

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

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
	Do     string `json:"do"`    // "setup", "work", or "submit"
	Slots  int    `json:"slots"` // per stage
	WorkMS int64  `json:"workMs"`
}

// Setup installs the packages of the app and lets it create its tables.
func (a App) Setup(ctx context.Context, url string) error {
	p, err := a.start(ctx, config{URL: url, Do: "setup"}, harness.Options{})
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
	c := config{URL: url, Do: "work", Slots: max(1, o.Slots), WorkMS: o.WorkTime.Milliseconds()}
	return a.start(ctx, c, o)
}

// StartSubmitter starts the app in a mode that only submits tasks.
func (a App) StartSubmitter(ctx context.Context, url string) (*Process, error) {
	return a.start(ctx, config{URL: url, Do: "submit"}, harness.Options{})
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
	script, err := a.writeScript(dir)
	if err != nil {
		return nil, fmt.Errorf("write script of %s: %w", a.Name, err)
	}
	p, err := startProcess(ctx, node, script, c, o)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", a.Name, err)
	}
	return p, nil
}

//go:embed host.mjs
var host []byte

// writeScript puts the script into the directory of its packages. The file name has a hash,
// so that another version of this program gets another file.
func (a App) writeScript(dir string) (path string, err error) {
	script, err := fs.ReadFile(a.Files, a.Script)
	if err != nil {
		return "", err
	}
	text := slices.Concat(host, script)
	hash := sha256.Sum256(text)
	path = filepath.Join(dir, hex.EncodeToString(hash[:8])+"-"+a.Script)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	f, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return "", err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return path, nil
}
