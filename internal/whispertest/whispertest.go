// Package whispertest stands in for whisper-cli in tests. [New] makes a program that takes its arguments, checks its input, and writes
// and ends like it. What is spoken depends on the language that it is asked for:
//
//	auto  "Guten Tag" and music, in German
//	fr    nothing
//	eo    a language that the program does not know
//	la    a model that it cannot load
//
// It shows how Cuelight uses the program, and not what a model understands.
package whispertest

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

//go:embed whisper.sh
var script string

// Program is a program that stands in for whisper-cli, and a file for its model.
type Program struct{ Path, Model string }

// New makes the program.
func New(t testing.TB) Program {
	t.Helper()
	dir := t.TempDir()
	p := Program{filepath.Join(dir, "whisper-cli"), filepath.Join(dir, "ggml-test.bin")}
	// A child writes it: a program cannot be executed while a fork of another test has it open for writing.
	write := exec.Command("/bin/sh", "-c", `cat >"$0" && chmod 755 "$0"`, p.Path)
	write.Stdin = strings.NewReader(script)
	if out, err := write.CombinedOutput(); err != nil {
		t.Fatalf("write the stand-in for whisper-cli: %v: %s", err, out)
	}
	if err := os.WriteFile(p.Model, []byte("a model\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

// Shut makes the program wait until the function that it returns is called. It must run without a sandbox.
func (p Program) Shut(t testing.TB) (open func()) {
	t.Helper()
	if err := os.WriteFile(p.Path+".shut", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(p.Path + ".shut"); err != nil {
			t.Fatal(err)
		}
	}
}

// Calls counts the recognitions that began. It is 0 in a sandbox.
func (p Program) Calls() int {
	text, _ := os.ReadFile(p.Path + ".calls")
	return strings.Count(string(text), "\n")
}
