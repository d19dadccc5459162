// Vendor downloads the third-party scripts of the pages from the npm registry and writes
// them, with their licences and VENDOR.json, into two directories of assets:
//
//	go run ./web/internal/vendor
//
// The list of packages is in this file; to upgrade one, change its version here. Vendor
// checks every package against the registry's integrity value. VENDOR.json has the
// SHA-256 of each file, which a test compares. Vendor needs npm; building and testing
// Cuelight does not.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
)

// wanted is a package and its files to copy: the name in the package by the name here.
type wanted struct {
	name, version string
	files         map[string]string
}

// packages by the directory of the files.
var packages = map[string][]wanted{
	"web/ui/assets/vendor": {
		{"htmx.org", "4.0.1", map[string]string{
			"htmx.min.js": "dist/htmx.min.js", "hx-sse.min.js": "dist/ext/hx-sse.min.js", "htmx.LICENSE": "LICENSE",
		}},
		{"tus-js-client", "4.3.1", map[string]string{"tus.min.js": "dist/tus.min.js", "tus.LICENSE": "LICENSE"}},
	},
	"web/embed/assets/vendor": {
		{"hls.js", "1.7.4", map[string]string{"hls.min.js": "dist/hls.min.js", "hls.LICENSE": "LICENSE"}},
		{"media-chrome", "4.19.4", map[string]string{"media-chrome.min.js": "dist/iife/all.js", "media-chrome.LICENSE": "LICENSE"}},
	},
}

// vendored is an entry of VENDOR.json.
type vendored struct {
	Name      string            `json:"name"`
	Version   string            `json:"version"`
	License   string            `json:"license"`
	Integrity string            `json:"integrity"` // of the package, from the registry
	Files     map[string]string `json:"files"`     // SHA-256 by name
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "vendor:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 0 {
		return errors.New("usage: vendor, in the directory of the module")
	}
	for dir, wanted := range packages {
		if err := fetchAll(ctx, dir, wanted); err != nil {
			return err
		}
	}
	return nil
}

func fetchAll(ctx context.Context, dir string, wanted []wanted) error {
	var all []vendored
	for _, p := range wanted {
		v, files, err := fetch(ctx, p)
		if err != nil {
			return fmt.Errorf("%s@%s: %w", p.name, p.version, err)
		}
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if err := os.WriteFile(filepath.Join(dir, name), files[name], 0o644); err != nil {
				return err
			}
		}
		all = append(all, v)
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "VENDOR.json"), append(text, '\n'), 0o644)
}

func fetch(ctx context.Context, p wanted) (v vendored, files map[string][]byte, err error) {
	dir, err := os.MkdirTemp("", "cuelight-vendor-")
	if err != nil {
		return v, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cmd := exec.CommandContext(ctx, "npm", "pack", "--json", "--ignore-scripts", "--loglevel=error", p.name+"@"+p.version)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return v, nil, fmt.Errorf("npm pack: %w", err)
	}
	pack, err := parsePack(out)
	if err != nil {
		return v, nil, err
	}
	packed, err := os.ReadFile(filepath.Join(dir, filepath.Base(pack.Filename)))
	if err != nil {
		return v, nil, err
	}
	sum := sha512.Sum512(packed)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != pack.Integrity {
		return v, nil, fmt.Errorf("integrity is %s, but the registry has %s", got, pack.Integrity)
	}
	return unpack(p, pack.Integrity, packed)
}

type packed struct{ Filename, Integrity string }

// parsePack reads the output of npm pack: a list, or in newer versions a map.
func parsePack(out []byte) (packed, error) {
	var list []packed
	if err := json.Unmarshal(out, &list); err == nil && len(list) == 1 {
		return list[0], nil
	}
	var byName map[string]packed
	if err := json.Unmarshal(out, &byName); err != nil || len(byName) != 1 {
		return packed{}, fmt.Errorf("unexpected output of npm pack: %q", out)
	}
	for _, p := range byName {
		return p, nil
	}
	return packed{}, nil
}

func unpack(p wanted, integrity string, archive []byte) (vendored, map[string][]byte, error) {
	v := vendored{Name: p.name, Version: p.version, Integrity: integrity, Files: make(map[string]string)}
	contents, err := readArchive(archive)
	if err != nil {
		return v, nil, err
	}
	var about struct{ License string }
	if err := json.Unmarshal(contents["package.json"], &about); err != nil {
		return v, nil, fmt.Errorf("package.json: %w", err)
	}
	v.License = about.License
	files := make(map[string][]byte)
	for name, from := range p.files {
		text, ok := contents[from]
		if !ok {
			return v, nil, fmt.Errorf("the package has no file %s", from)
		}
		sum := sha256.Sum256(text)
		files[name], v.Files[name] = text, hex.EncodeToString(sum[:])
	}
	return v, files, nil
}

// readArchive returns the files of a package by name.
func readArchive(archive []byte) (map[string][]byte, error) {
	zipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	contents := make(map[string][]byte)
	for in := tar.NewReader(zipped); ; {
		h, err := in.Next()
		if err == io.EOF {
			return contents, nil
		}
		if err != nil {
			return nil, err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(in, 64<<20))
		if err != nil {
			return nil, err
		}
		_, name, _ := strings.Cut(h.Name, "/")
		contents[name] = text
	}
}
