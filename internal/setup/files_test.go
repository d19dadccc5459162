package setup_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestFiles_AreCopiedBelowThePrefix(t *testing.T) {
	t.Parallel()
	dir, dest := t.TempDir(), t.TempDir()
	for _, name := range []string{
		"internal/setup/files.sh", "docs/deploy/cuelight.service", "docs/deploy/cuelight-work.service",
		"docs/deploy/sysusers.conf", "docs/deploy/cuelight.yaml",
	} {
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, name), string(text))
	}
	writeFile(t, filepath.Join(dir, "bin/cuelight"), `#!/bin/sh
case $1 in
man) echo page >"$2/cuelight.1" ;;
*) echo "$*" ;;
esac
`)
	install := func() string {
		out, err := exec.Command("sh", filepath.Join(dir, "internal/setup/files.sh"), dest, "/opt").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	printed := install()
	for name, want := range map[string]string{
		"/opt/lib/systemd/system/cuelight.service":           "ExecStart=/opt/bin/cuelight serve\n",
		"/opt/lib/systemd/system/cuelight-work.service":      "ExecStart=/opt/bin/cuelight work\n",
		"/opt/lib/sysusers.d/cuelight.conf":                  "u cuelight ",
		"/opt/bin/cuelight":                                  "#!/bin/sh",
		"/opt/share/man/man1/cuelight.1":                     "page",
		"/opt/share/bash-completion/completions/cuelight":    "completion bash",
		"/opt/share/zsh/site-functions/_cuelight":            "completion zsh",
		"/opt/share/fish/vendor_completions.d/cuelight.fish": "completion fish",
		"/etc/cuelight/cuelight.yaml":                        "data-dir: ",
	} {
		text, err := os.ReadFile(dest + name)
		if err != nil || !strings.Contains(string(text), want) || !strings.Contains(printed, dest+name+"\n") {
			t.Errorf("%s: %v, %q; printed %s", name, err, text, printed)
		}
	}

	writeFile(t, dest+"/etc/cuelight/cuelight.yaml", "mine")
	if printed := install(); strings.Contains(printed, "cuelight.yaml") {
		t.Error("it has replaced the configuration file")
	}
}

// writeFile writes a program or a text, and creates its directory.
func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}
