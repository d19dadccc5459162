package postgres

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// MinMajor is the oldest PostgreSQL that Cuelight works with.
const MinMajor = 13

// BinEnv is the environment variable with the directory of the server's programs,
// for an installation that [Find] does not find or prefer.
const BinEnv = "CUELIGHT_PG_BIN"

// ErrNotInstalled means that the machine has no usable PostgreSQL server. The text
// of such an error says how to install one.
var ErrNotInstalled = errors.New("no PostgreSQL server programs found")

// Binaries is one installation of the PostgreSQL server.
type Binaries struct {
	Dir     string // contains initdb and postgres; absolute, symbolic links resolved
	Version string // as the server prints it: "15.18", "18beta1"
	Major   int    // 15
}

// Path is the path of a program of the installation.
func (b Binaries) Path(program string) string { return filepath.Join(b.Dir, program) }

// Find lists the usable installations, the preferred one first. It searches only
// $CUELIGHT_PG_BIN if that is set. Otherwise it searches the directory that pg_config
// names, the usual directories (newest version first) and PATH. It skips servers older
// than [MinMajor]. If it finds none, the error is [ErrNotInstalled].
func Find() ([]Binaries, error) {
	dir := os.Getenv(BinEnv)
	groups := [][]string{{dir}}
	if dir == "" {
		groups = usualDirs()
	}

	var found []Binaries
	var reasons []string
	seen := make(map[string]bool)
	for _, group := range groups {
		var usable []Binaries
		for _, candidate := range group {
			real, err := resolve(candidate)
			if err == nil && seen[real] {
				continue
			}
			seen[real] = true
			var b Binaries
			if err == nil {
				b, err = inspect(real)
			}
			switch {
			case err == nil:
				usable = append(usable, b)
			case dir != "" || !errors.Is(err, os.ErrNotExist):
				reasons = append(reasons, err.Error())
			}
		}
		slices.SortStableFunc(usable, func(a, b Binaries) int { return cmp.Compare(b.Major, a.Major) })
		found = append(found, usable...)
	}
	if len(found) > 0 {
		return found, nil
	}
	return nil, notInstalled(dir, reasons)
}

// usualDirs returns groups of directories, the preferred group first. Within a group
// the newest version is preferred.
func usualDirs() [][]string {
	var groups [][]string
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		groups = append(groups, []string{string(bytes.TrimSpace(out))})
	}
	groups = append(groups,
		glob("/usr/lib/postgresql/*/bin", "/usr/lib/postgresql*/bin", "/usr/libexec/postgresql*", "/usr/pgsql-*/bin"),
		[]string{"/usr/local/bin", "/usr/local/pgsql/bin"})
	if path, err := exec.LookPath("postgres"); err == nil {
		groups = append(groups, []string{filepath.Dir(path)})
	}
	return append(groups,
		glob("/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin"),
		glob("/Applications/Postgres.app/Contents/Versions/*/bin"))
}

func glob(patterns ...string) []string {
	var all []string
	for _, p := range patterns {
		m, _ := filepath.Glob(p) // the only error is a bad pattern
		all = append(all, m...)
	}
	return all
}

// resolve is the real path of a directory with the two required programs;
// distributions link one directory to another. For a directory without them the
// error matches os.ErrNotExist.
func resolve(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for _, program := range []string{"initdb", "postgres"} {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			return "", err
		}
	}
	return filepath.EvalSymlinks(dir)
}

// inspect runs the server to read its version.
func inspect(dir string) (Binaries, error) {
	out, err := exec.Command(filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return Binaries{}, fmt.Errorf("read the version of %s: %w", filepath.Join(dir, "postgres"), err)
	}
	version, major := parseVersion(string(out))
	if major < MinMajor {
		return Binaries{}, fmt.Errorf("the server in %s is %q, older than the required version %d", dir,
			bytes.TrimSpace(out), MinMajor)
	}
	return Binaries{Dir: dir, Version: version, Major: major}, nil
}

// parseVersion reads "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)".
// The major version of any other text is 0.
func parseVersion(s string) (version string, major int) {
	_, rest, ok := strings.Cut(s, "(PostgreSQL) ")
	if !ok {
		return "", 0
	}
	version, _, _ = strings.Cut(strings.TrimSpace(rest), " ")
	digits := version
	if i := strings.IndexFunc(version, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		digits = version[:i]
	}
	if major, err := strconv.Atoi(digits); err == nil {
		return version, major
	}
	return version, 0
}

func notInstalled(dir string, reasons []string) error {
	hint := installLine("")
	if dir != "" {
		hint = fmt.Sprintf("set %s to the directory that contains initdb and postgres, or unset it", BinEnv)
	}
	return &Error{
		Text:   ErrNotInstalled.Error(),
		Hint:   hint,
		Detail: strings.Join(reasons, "\n"),
		Err:    ErrNotInstalled,
	}
}

// installLine returns a hint with the command that installs the server; version is empty
// or a major version.
func installLine(version string) string {
	has := func(program string) bool { _, err := exec.LookPath(program); return err == nil }
	switch {
	case runtime.GOOS == "darwin":
		if version == "" {
			version = "17"
		}
		return "install it: brew install postgresql@" + version
	case has("apt-get"):
		if version != "" {
			version = "-" + version
		}
		return "install it: apt-get install --no-install-recommends postgresql" + version
	case has("dnf"):
		if version != "" {
			version = ":" + version
		}
		return "install it: dnf install @postgresql" + version + "/server"
	case has("apk"):
		if version == "" {
			version = "17"
		}
		return "install it: apk add postgresql" + version
	default:
		return strings.TrimSpace("install PostgreSQL "+version) +
			fmt.Sprintf(" with your system's packages, or set %s to the directory of its programs", BinEnv)
	}
}
