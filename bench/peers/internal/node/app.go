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

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/peers/internal/work"
)

// App is a peer for Node.
type App struct {
	Name   string
	Files  fs.FS  // has package.json, package-lock.json and the script
	Script string // its name
}

// config is what a script is told.
type config struct {
	URL    string `json:"url"`
	Do     string `json:"do"`    // "setup", "work", or "submit"
	Slots  int    `json:"slots"` // per stage
	WorkMS int64  `json:"workMs"`
}

// Setup installs what the app needs, and has it make its tables.
func (a App) Setup(ctx context.Context, url string) error {
	var trouble work.ErrorList
	p, err := a.start(ctx, config{URL: url, Do: "setup"}, harness.Options{}, &trouble)
	if err == nil {
		err = errors.Join(p.Stop(ctx), trouble.Err())
	}
	if err != nil {
		return fmt.Errorf("make tables of %s: %w", a.Name, err)
	}
	return nil
}

// Start starts the app, and returns when it hears of new tasks. What goes wrong
// later is added to trouble.
func (a App) Start(ctx context.Context, url string, o harness.Options, trouble *work.ErrorList) (*Process, error) {
	c := config{URL: url, Do: "work", Slots: max(1, o.Slots), WorkMS: o.WorkTime.Milliseconds()}
	return a.start(ctx, c, o, trouble)
}

// Idle starts the app where it only submits.
func (a App) Idle(ctx context.Context, url string, trouble *work.ErrorList) (*Process, error) {
	return a.start(ctx, config{URL: url, Do: "submit"}, harness.Options{}, trouble)
}

func (a App) start(ctx context.Context, c config, o harness.Options, trouble *work.ErrorList) (*Process, error) {
	node, err := find(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := install(ctx, a.Name, a.Files)
	if err != nil {
		return nil, err
	}
	script, err := a.write(dir)
	if err != nil {
		return nil, fmt.Errorf("write script of %s: %w", a.Name, err)
	}
	p := newProcess(node, script, o, trouble)
	if err := p.begin(ctx, c); err != nil {
		return nil, fmt.Errorf("start %s: %w", a.Name, errors.Join(err, trouble.Err()))
	}
	return p, nil
}

//go:embed host.mjs
var host []byte

// write puts the script where it finds its packages. Its name has a hash, so
// that nobody gets another's.
func (a App) write(dir string) (path string, err error) {
	script, err := fs.ReadFile(a.Files, a.Script)
	if err != nil {
		return "", err
	}
	text := append(host[:len(host):len(host)], script...)
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
