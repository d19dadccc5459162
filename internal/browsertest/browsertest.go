// Package browsertest runs scripts that use pages in a real browser: in Chromium, driven by
// playwright-core in Node, with axe-core to find accessibility problems.
//
// A test calls [Require], which skips it on a machine without a browser, and then
// [Browser.Run] with a script that imports browser.mjs of this package. `npm ci` installs
// the modules of package-lock.json into the user's cache directory, once per lock file.
//
// Screenshots go to $CUELIGHT_TEST_PICTURES, with a directory for each test, or with
// -artifacts to the test's artifact directory. Without either, only those of failed tests
// are kept, and the log names their directory.
package browsertest

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // for the files of npm
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
	"testing"

	"github.com/cuelight/cuelight/internal/childproc"
)

//go:embed package.json
var packageJSON []byte

//go:embed package-lock.json
var packageLock []byte

// Browser has the programs and modules that scripts need.
type Browser struct{ chromium, node, modules string }

// Chromium finds the browser alone. Without one it skips the test, or fails it if $CI is
// set or $CUELIGHT_TEST_BROWSER is 1.
func Chromium(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	skipOrFail := t.Skipf
	if ci := os.Getenv("CI"); isRequired() || ci != "" && ci != "false" {
		skipOrFail = t.Fatalf
	}
	skipOrFail("Chromium is not installed")
	return ""
}

// Require finds the browser and Node, and installs the modules for scripts. It skips the test
// in short runs, and on a machine without Node or the network; if
// $CUELIGHT_TEST_BROWSER is 1, it fails the test instead.
func Require(t testing.TB) Browser {
	t.Helper()
	if testing.Short() {
		t.Skip("uses a browser")
	}
	b := Browser{chromium: Chromium(t)}
	b.node, b.modules = Node(t, packageJSON, packageLock)
	return b
}

// Node finds Node and installs the modules of a package.json and its package-lock.json. It
// returns the program and the directory with node_modules. Like [Require] it skips or fails
// the test if these are not available.
func Node(t testing.TB, packageJSON, packageLock []byte) (node, modules string) {
	t.Helper()
	skipOrFail := t.Skipf
	if isRequired() {
		skipOrFail = t.Fatalf
	}
	node, err := exec.LookPath("node")
	if err != nil {
		skipOrFail("Node is not installed")
	}
	if modules, err = install(t.Context(), packageJSON, packageLock); err != nil {
		skipOrFail("install the modules of the script: %v", err)
	}
	return node, modules
}

// isRequired reports whether a test without a browser must fail.
func isRequired() bool { return os.Getenv("CUELIGHT_TEST_BROWSER") == "1" }

// Module is the path of a file in an installed npm package, such as
// "hls.js/dist/hls.min.js".
func (b Browser) Module(file string) string {
	return filepath.Join(b.modules, "node_modules", filepath.FromSlash(file))
}

// Run runs a script and fails the test if the script fails. The script finds the input in
// the export "given" of browser.mjs.
func (b Browser) Run(t testing.TB, script string, input map[string]any) {
	t.Helper()
	path, err := filepath.Abs(script)
	if err != nil {
		t.Fatal(err)
	}
	dir := screenshotDir(t)
	input = maps.Clone(input)
	input["chromium"], input["pictures"] = b.chromium, dir
	text, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command(b.node, path, string(text))
	cmd.Env = append(os.Environ(), "CUELIGHT_NODE_MODULES="+b.modules)
	cmd.Stdout, cmd.Stderr = &out, &out
	err = childproc.Run(t.Context(), cmd, childproc.Options{})
	t.Logf("output of the browser:\n%s", out.String())
	if err != nil {
		t.Errorf("%v; screenshots are in %s", err, dir)
	}
}

// Control serves actions for scripts that a page cannot do itself, and returns their
// address. The script gets the text or the error of an action.
func Control(t testing.TB, actions map[string]func(form url.Values) (string, error)) (address string) {
	t.Helper()
	mux := http.NewServeMux()
	for name, action := range actions {
		mux.HandleFunc("POST /test/"+name, func(w http.ResponseWriter, r *http.Request) {
			if err := r.ParseForm(); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			text, err := action(r.PostForm)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_, _ = io.WriteString(w, text) // the script may have ended
		})
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// screenshotDir is the directory of the test's screenshots.
func screenshotDir(t testing.TB) string {
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

// install runs npm in a temporary directory and renames that, so that the modules are
// there completely or not at all.
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
		if _, statErr := os.Stat(dir); statErr == nil {
			return dir, nil // another process was faster
		}
		return "", err
	}
	return dir, nil
}
