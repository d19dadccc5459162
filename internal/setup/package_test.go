package setup_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// packageVersion returns the version that package.sh gives to the packages, and whether others may read all their files.
func packageVersion(t *testing.T, version string) (string, bool) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{
		"internal/setup/package.sh", "internal/setup/files.sh", "docs/deploy/cuelight.service", "docs/deploy/cuelight-work.service",
		"docs/deploy/sysusers.conf", "docs/deploy/cuelight.yaml", "LICENSE", "CHANGELOG.md",
	} {
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, name), string(text))
	}
	writeFile(t, filepath.Join(dir, "bin/cuelight"), "#!/bin/sh\n[ $1 != man ] || echo page >$2/cuelight.1\n")
	writeFile(t, filepath.Join(dir, "programs/git"), "#!/bin/sh\necho 20260102030405\n")
	writeFile(t, filepath.Join(dir, "programs/go"), "#!/bin/sh\n[ $1 != tool ] || echo $PACKAGE_VERSION >version\n")
	cmd := exec.Command("sh", "-c", "umask 077 && exec internal/setup/package.sh")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "VERSION="+version, "GO=", "SOURCE_DATE_EPOCH=1", "PATH="+dir+"/programs:"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("package.sh: %v: %s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "version"))
	if err != nil {
		t.Fatal(err)
	}
	readable := true
	err = filepath.Walk(filepath.Join(dir, "bin/package"), func(_ string, info os.FileInfo, err error) error {
		readable = readable && err == nil && info.Mode()&0o044 == 0o044
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text)), readable
}

func TestPackage_SortsPreReleasesBeforeTheirRelease(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"v1.0.0":                       "1.0.0",
		"1.2.3":                        "1.2.3",
		"v1.0.0-rc1":                   "1.0.0~rc1",
		"v1.0.0-beta.2":                "1.0.0~beta.2",
		"v1.0.0-alpha-3":               "1.0.0~alpha~3",
		"v1.0.0-5-g0f02843":            "1.0.0+5+g0f02843",
		"v1.0.0-dirty":                 "1.0.0+dirty",
		"v1.0.0-rc1-12-g0f02843-dirty": "1.0.0~rc1+12+g0f02843+dirty",
		"0f02843-dirty":                "0~20260102030405.0f02843+dirty",
		"":                             "0~20260102030405.unknown",
	} {
		if got, readable := packageVersion(t, version); got != want || !readable {
			t.Errorf("%q: the version of the packages is %q, want %q; all can read their files: %v", version, got, want, readable)
		}
	}
}

// copyCheckout copies the files of this checkout, so that no result of a build in it is replaced.
func copyCheckout(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = "../.."
	names, err := list.Output()
	if err != nil {
		t.Fatalf("list the files of the checkout: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		from := filepath.Join("../..", name)
		info, err := os.Stat(from)
		if err != nil {
			continue // deleted, but not committed
		}
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, name), string(text))
		if err := os.Chmod(filepath.Join(dir, name), info.Mode()); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestPackage_ForDebianHasAllFiles(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the program")
	}
	for _, program := range []string{"dpkg-deb", "git", "make"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not installed")
		}
	}
	dir := copyCheckout(t)
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1767225600")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
		return string(out)
	}
	run("sh", "-c", "umask 077 && make package VERSION=v1.0.0-rc1")
	files, err := filepath.Glob(filepath.Join(dir, "bin/cuelight_1.0.0~rc1_*.deb"))
	if err != nil || len(files) != 1 {
		t.Fatalf("it has built %v, %v", files, err)
	}
	if rpm, err := filepath.Glob(filepath.Join(dir, "bin/cuelight-1.0.0~rc1*.rpm")); err != nil || len(rpm) != 1 {
		t.Errorf("it has built %v, %v", rpm, err)
	}
	run("dpkg", "--compare-versions", strings.TrimSpace(run("dpkg-deb", "-f", files[0], "Version")), "lt", "1.0.0")
	if conffiles := run("dpkg-deb", "-I", files[0], "conffiles"); conffiles != "/etc/cuelight/cuelight.yaml\n" {
		t.Errorf("the configuration files are %q", conffiles)
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		want, err := os.ReadFile(filepath.Join("package", script+".sh"))
		if err != nil {
			t.Fatal(err)
		}
		if got := run("dpkg-deb", "-I", files[0], script); got != string(want) {
			t.Errorf("its %s is %q", script, got)
		}
	}
	modes := make(map[string]string)
	for line := range strings.Lines(run("dpkg-deb", "-c", files[0])) {
		if f := strings.Fields(line); len(f) >= 6 {
			modes[f[5]] = f[0] + " " + f[1]
		}
	}
	for name, mode := range map[string]string{
		"./usr/bin/cuelight": "-rwxr-xr-x", "./etc/cuelight/cuelight.yaml": "-rw-r-----",
		"./usr/lib/systemd/system/cuelight.service":           "-rw-r--r--",
		"./usr/lib/systemd/system/cuelight-work.service":      "-rw-r--r--",
		"./usr/lib/sysusers.d/cuelight.conf":                  "-rw-r--r--",
		"./usr/share/man/man1/cuelight-serve.1.gz":            "-rw-r--r--",
		"./usr/share/bash-completion/completions/cuelight":    "-rw-r--r--",
		"./usr/share/zsh/vendor-completions/_cuelight":        "-rw-r--r--",
		"./usr/share/fish/vendor_completions.d/cuelight.fish": "-rw-r--r--",
		"./usr/share/doc/cuelight/":                           "drwxr-xr-x",
		"./usr/share/doc/cuelight/copyright":                  "-rw-r--r--",
		"./usr/share/doc/cuelight/changelog.gz":               "-rw-r--r--",
		"./usr/share/doc/cuelight/examples/cuelight.yaml":     "-rw-r--r--",
	} {
		if want := mode + " root/root"; modes[name] != want {
			t.Errorf("%s is %q, want %q", name, modes[name], want)
		}
	}
}
