// Package browsertest runs scripts that use pages as people do: in Chromium, driven
// by playwright-core in Node, with axe-core to look for what shuts people out.
//
// A test calls [Need], which skips it where there is no browser, and then
// [Browser.Run] with a script that imports browser.mjs of this package. What the
// script needs is installed by `npm ci` from package-lock.json into the user's cache
// directory, once per lock file.
//
// Pictures go to $CUELIGHT_TEST_PICTURES, below which each test has a folder, or with
// -artifacts to the test's own folder of those; otherwise they are kept only of tests
// that fail, whose log says where.
package browsertest

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // what npm is to install
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

//go:embed package.json
var packageJSON []byte

//go:embed package-lock.json
var packageLock []byte

// Browser is what scripts are run with.
type Browser struct{ chromium, node, modules string }

// Chromium finds the browser alone. It skips the test where there is none, unless
// $CI is set, or $CUELIGHT_TEST_BROWSER=1: then it fails.
func Chromium(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	missing(t)("there is no Chromium on this machine")
	return ""
}

// Need finds the browser and Node, and installs what scripts import. It skips the
// test in short runs and where these cannot be had: Node and the network are not
// on every machine. With $CUELIGHT_TEST_BROWSER=1 it fails instead.
func Need(t testing.TB) Browser {
	t.Helper()
	if testing.Short() {
		t.Skip("uses a browser")
	}
	b := Browser{chromium: Chromium(t)}
	b.node, b.modules = Node(t, packageJSON, packageLock)
	return b
}

// Node finds Node, and installs what a package.json and its package-lock.json name; it
// returns the program and the directory that has node_modules. Like [Need] it skips
// the test, or fails it, where these cannot be had.
func Node(t testing.TB, packageJSON, packageLock []byte) (node, modules string) {
	t.Helper()
	lacks := t.Skipf
	if wanted() {
		lacks = t.Fatalf
	}
	node, err := exec.LookPath("node")
	if err != nil {
		lacks("there is no Node on this machine")
	}
	if modules, err = install(t.Context(), packageJSON, packageLock); err != nil {
		lacks("install what the script needs: %v", err)
	}
	return node, modules
}

func missing(t testing.TB) func(string, ...any) {
	if ci := os.Getenv("CI"); wanted() || ci != "" && ci != "false" {
		return t.Fatalf
	}
	return t.Skipf
}

// wanted reports whether somebody said that there is all that is needed.
func wanted() bool { return os.Getenv("CUELIGHT_TEST_BROWSER") == "1" }

// Module is the path of a file in an installed npm package, such as
// "hls.js/dist/hls.min.js".
func (b Browser) Module(file string) string {
	return filepath.Join(b.modules, "node_modules", filepath.FromSlash(file))
}

// Run runs a script to its end, and fails the test if that is not a good one. The
// script finds what it is given, as JSON, in the export of that name of browser.mjs.
func (b Browser) Run(t testing.TB, script string, given map[string]any) {
	t.Helper()
	path, err := filepath.Abs(script)
	if err != nil {
		t.Fatal(err)
	}
	dir := pictures(t)
	given = maps.Clone(given)
	given["chromium"], given["pictures"] = b.chromium, dir
	text, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), b.node, path, string(text))
	cmd.Env = append(os.Environ(), "CUELIGHT_NODE_MODULES="+b.modules)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it has children
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Run()
	t.Logf("the browser says:\n%s", out.String())
	if err != nil {
		t.Errorf("%v; pictures are in %s", err, dir)
	}
}

// Control serves what a script asks for by control, which a page cannot do, and
// returns its address. An error is shown to the script.
func Control(t testing.TB, can map[string]func(form url.Values) (string, error)) (address string) {
	t.Helper()
	mux := http.NewServeMux()
	for what, do := range can {
		mux.HandleFunc("POST /test/"+what, func(w http.ResponseWriter, r *http.Request) {
			if err := r.ParseForm(); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			text, err := do(r.PostForm)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_, _ = io.WriteString(w, text) // a script that has ended is not told
		})
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// pictures is where they go.
func pictures(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("CUELIGHT_TEST_PICTURES"); dir != "" {
		dir = filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "-"))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	if f := flag.Lookup("test.artifacts"); f != nil && f.Value.String() == "true" {
		return t.ArtifactDir()
	}
	dir, err := os.MkdirTemp("", "cuelight-pictures-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// install has npm install what package-lock.json says, beside its place first, so
// that it is there whole or not at all.
func install(ctx context.Context, packageJSON, packageLock []byte) (dir string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	hash := sha256.Sum256(append(bytes.Clone(packageJSON), packageLock...))
	dir = filepath.Join(cache, "cuelight-test", "npm-"+hex.EncodeToString(hash[:8]))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	temporary, err := os.MkdirTemp(filepath.Dir(dir), ".new-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	for name, text := range map[string][]byte{"package.json": packageJSON, "package-lock.json": packageLock} {
		if err := os.WriteFile(filepath.Join(temporary, name), text, 0o644); err != nil {
			return "", err
		}
	}
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = temporary
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w: %s", err, strings.Join(strings.Fields(string(out)), " "))
	}
	if err := os.Rename(temporary, dir); err != nil {
		if _, there := os.Stat(dir); there == nil {
			return dir, nil // somebody else was first
		}
		return "", err
	}
	return dir, nil
}
