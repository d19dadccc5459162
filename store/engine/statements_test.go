package engine

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// maxStatements is how many statements the engine may have, and maxLines how long one may be.
const maxStatements, maxLines = 25, 60

func TestStatements_AreShortAndNamed(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`^/\* [a-z][a-z ,']+ \*/\n`)
	names, count := make(map[string]bool), 0
	inspect := func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !strings.HasSuffix(spec.Names[0].Name, "SQL") {
			return true
		}
		literal, ok := spec.Values[0].(*ast.BasicLit)
		if !ok {
			t.Errorf("%s is not one text", spec.Names[0].Name)
			return false
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		text = strings.TrimSpace(text)
		count++
		comment := name.FindString(text)
		if comment == "" || names[comment] {
			t.Errorf("%s does not begin with a comment that names it alone: %.60q", spec.Names[0].Name, text)
		}
		names[comment] = true
		lines := strings.Split(text, "\n")
		if len(lines) > maxLines {
			t.Errorf("%s has %d lines, the maximum is %d", spec.Names[0].Name, len(lines), maxLines)
		}
		for _, line := range lines {
			if len(line) >= 120 {
				t.Errorf("%s has a line of %d bytes: %s", spec.Names[0].Name, len(line), line)
			}
			if unplaced := strings.ReplaceAll(line, "STAGE", ""); unplaced != strings.ToLower(unplaced) {
				t.Errorf("%s is not in lower case: %s", spec.Names[0].Name, line)
			}
		}
		return false
	}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, inspect)
	}
	if count == 0 || count > maxStatements {
		t.Errorf("there are %d statements, the maximum is %d", count, maxStatements)
	}
}
