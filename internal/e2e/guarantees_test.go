package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestGuarantees_NameExistingTests(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	tests := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(text, -1) {
			tests[filepath.Base(filepath.Dir(path))+"."+string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z0-9]+\\.Test\\w+)`").FindAllSubmatch(text, -1)
	for _, m := range named {
		if !tests[string(m[1])] {
			t.Errorf("docs/guarantees.md names %s, which does not exist", m[1])
		}
	}
	if len(named) < 30 {
		t.Errorf("docs/guarantees.md names only %d tests", len(named))
	}
}
