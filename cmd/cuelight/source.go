package main

import (
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/fetch"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

// sourceOf returns the source of a task for an argument: in UTF-8, and the same file
// from every working directory.
func sourceOf(arg, workingDir string) (string, error) {
	if arg == "" {
		return "", usererr.Usagef("an empty name is not a file")
	}
	if arg == "-" {
		return "", usererr.Usagef(`standard input cannot be a source: name a file, or ./- for a file called "-"`)
	}
	if urlPattern.MatchString(arg) {
		source := escapeInvalid(arg)
		if err := fetch.CheckSource(source); err != nil {
			return "", usererr.Usagef("%s: %v", shownSource(arg), err)
		}
		return source, nil
	}
	path := arg
	if !filepath.IsAbs(path) {
		// filepath.Join would clean it: where "a" is a symbolic link, "a/../b" is not "b".
		path = strings.TrimSuffix(workingDir, "/") + "/" + strings.TrimPrefix(path, "./")
	}
	return daemon.SourceOfPath(path), nil
}

// urlPattern matches the beginning of a URL. The ingest stage decides by the same rule.
var urlPattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)

// shownSource returns a source without secrets, printable.
func shownSource(source string) string { return usererr.Printable(redact.Shown(source)) }

// titleOf returns a task's title, or its source if it has none.
func titleOf(t store.Task) string {
	if title := t.Title(); title != "" {
		return usererr.Printable(title)
	}
	return shownSource(t.Source)
}

// labelOf returns the last part of a source's name.
func labelOf(source string) string { return usererr.Printable(redact.Name(source)) }

// fileURL returns the file URL of a path.
func fileURL(path string) string { return (&url.URL{Scheme: "file", Path: path}).String() }

// escapeInvalid percent-encodes the bytes of an address that are not UTF-8.
func escapeInvalid(address string) string {
	var b strings.Builder
	for i, r := range address {
		if _, size := utf8.DecodeRuneInString(address[i:]); r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, "%%%02X", address[i])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
