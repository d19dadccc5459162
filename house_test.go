package cuelight_test

import (
	"bufio"
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The rules of the house. docs/contributing.md explains them.

// tree is the Go files of the repository by directory, and the SQL files.
type tree struct {
	fset     *token.FileSet
	packages map[string]map[string]*ast.File // directory → file → syntax
	sql      []string
	texts    []string // documents, scripts, templates of pages
}

var skippedDirs = map[string]bool{"vendor": true, "testdata": true, "bin": true, "node_modules": true}

// parsed is the tree, read once for all rules.
var parsed = sync.OnceValues(readTree)

func parseTree(t *testing.T) tree {
	t.Helper()
	found, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func readTree() (tree, error) {
	found := tree{fset: token.NewFileSet(), packages: make(map[string]map[string]*ast.File)}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (skippedDirs[d.Name()] || strings.HasPrefix(d.Name(), ".") && path != ".") {
			return filepath.SkipDir
		}
		switch filepath.Ext(path) {
		case ".sql", ".tmpl":
			found.sql = append(found.sql, path)
		case ".md", ".sh", ".txtar", ".html", ".mjs", ".ts":
			found.texts = append(found.texts, path)
		case ".go":
			file, err := parser.ParseFile(found.fset, path, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			dir := filepath.Dir(path)
			if found.packages[dir] == nil {
				found.packages[dir] = make(map[string]*ast.File)
			}
			found.packages[dir][path] = file
		}
		return nil
	})
	return found, err
}

func TestPackages_HaveADoc(t *testing.T) {
	for dir, files := range parseTree(t).packages {
		documented, production := false, false
		for path, file := range files {
			if !strings.HasSuffix(path, "_test.go") {
				production = true
				documented = documented || file.Doc != nil
			}
		}
		if production && !documented {
			t.Errorf("package %s has no doc: say what it promises, what to call first, and what it does not do", dir)
		}
	}
}

func TestExportedNames_HaveAComment(t *testing.T) {
	found := parseTree(t)
	for _, files := range found.packages {
		for path, file := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			for _, decl := range file.Decls {
				for _, name := range undocumented(decl) {
					t.Errorf("%s: %s has no comment that starts with its name", found.fset.Position(name.Pos()), name.Name)
				}
			}
		}
	}
}

// undocumented returns the exported names of a declaration that have no comment.
func undocumented(decl ast.Decl) (names []*ast.Ident) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && !isMethodOfUnexported(d) && !standardMethods[d.Name.Name] &&
			!startsWith(d.Doc, d.Name.Name) {
			names = append(names, d.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && !startsWith(s.Doc, s.Name.Name) && !startsWith(d.Doc, s.Name.Name) {
					names = append(names, s.Name)
				}
			case *ast.ValueSpec: // a group may share a comment, and a value may have one on its line
				if s.Names[0].IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
					names = append(names, s.Names[0])
				}
			}
		}
	}
	return names
}

// standardMethods are methods that every Go programmer knows.
var standardMethods = map[string]bool{"Error": true, "Unwrap": true, "String": true}

func startsWith(doc *ast.CommentGroup, name string) bool {
	text := strings.TrimPrefix(strings.TrimPrefix(doc.Text(), "A "), "An ")
	return strings.HasPrefix(text, name) || strings.HasPrefix(text, "Deprecated:")
}

func isMethodOfUnexported(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return false
	}
	receiver := d.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if generic, ok := receiver.(*ast.IndexExpr); ok {
		receiver = generic.X
	}
	name, ok := receiver.(*ast.Ident)
	return ok && !name.IsExported()
}

func TestLines_AreShort(t *testing.T) {
	found := parseTree(t)
	paths := slices.Clone(found.sql)
	for _, files := range found.packages {
		for path := range files {
			paths = append(paths, path)
		}
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(bytes.NewReader(text))
		lines.Buffer(nil, 1<<20)
		for n := 1; lines.Scan(); n++ {
			if length := len([]rune(lines.Text())); length > 140 {
				t.Errorf("%s:%d has %d columns; the limit is 140", path, n, length)
			}
		}
	}
}

// forbiddenImports lists the packages that a directory must not import, with the reason.
var forbiddenImports = []struct{ from, to, reason string }{
	{"", "cmd", "nothing imports the command"},
	{"store", "stages", "data moves down: the store does not know who works"},
	{"store", "notify", "the store sends notifications and receives none"},
	{"notify", "store", "the listener knows channels, not tasks"},
	{"notify", "stages", "the listener knows channels, not stages"},
	{"stages", "web", "a worker does not know the API"},
	{"web/ui", "store/engine", "only dispatchers use the engine"},
	{"web", "store/engine", "only dispatchers use the engine"},
	{"internal", "web", "packages that the server uses do not know it"},
	{"internal/media", "store", "media knows files, not tasks"},
}

// allowedImports are the exceptions: packages that put everything together.
var allowedImports = regexp.MustCompile(`^(cmd|bench|internal/(daemon|proof|e2e|clienttest|ops|browsertest|setup)` +
	`|docs)(/|$)|uitest|browser_test`)

func TestImports_PointDown(t *testing.T) {
	const module = "github.com/cuelight/cuelight/"
	for dir, files := range parseTree(t).packages {
		if allowedImports.MatchString(dir) {
			continue
		}
		for path, file := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			for _, imported := range file.Imports {
				to := strings.TrimPrefix(strings.Trim(imported.Path.Value, `"`), module)
				for _, rule := range forbiddenImports {
					if inside(dir, rule.from) && inside(to, rule.to) {
						t.Errorf("%s imports %s: %s", path, to, rule.reason)
					}
				}
			}
		}
	}
}

// inside reports whether a path is the directory or below it; every path is inside "".
func inside(path, dir string) bool {
	return dir == "" || path == dir || strings.HasPrefix(path, dir+"/")
}

// forbiddenWords are words with the ones to use instead.
var forbiddenWords = map[string]string{
	"told": "recorded, notified, printed, asked", "beside": "next to, parallel to", "people": "operators, users",
	"whoever": "a named subject", "anew": "again", "haste": "shutdown", "stubborn": "ignored its cancel",
	"given back": "released", "gives back": "releases", "comes to an end": "ends", "looks on": "reads",
	"dead letter": "dead task", "torment": "fault", "theatre": "harness", "laborer": "worker", "testimony": "log",
	"crew": "workers", "sighting": "observation", "lookout": "queue", "deaf": "not listening",
	"beaten": "renewed", "herald": "notify", "disown": "release", "ripen": "become due", "mended": "repaired",
	"stranger": "a client without credentials", "let in": "accepted", "kept out": "rejected",
}

func TestWords_FollowTheGlossary(t *testing.T) {
	found := parseTree(t)
	paths := slices.Concat(found.sql, found.texts)
	for _, files := range found.packages {
		paths = slices.AppendSeq(paths, maps.Keys(files))
	}
	words := slices.Collect(maps.Keys(forbiddenWords))
	forbidden := regexp.MustCompile(`(?i)\b(` + strings.Join(words, "|") + `)\b`)
	for _, path := range paths {
		if path == "house_test.go" || strings.HasPrefix(path, "bench/results/") {
			continue // the list itself, and results as they were published
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lower := strings.ToLower(string(text))
		if !slices.ContainsFunc(words, func(word string) bool { return strings.Contains(lower, word) }) {
			continue // the expression takes a hundred times as long
		}
		for n, line := range strings.Split(string(text), "\n") {
			for _, word := range forbidden.FindAllString(line, -1) {
				t.Errorf("%s:%d: %q; use: %s (see docs/glossary.md)", path, n+1, word, forbiddenWords[strings.ToLower(word)])
			}
		}
	}
}
