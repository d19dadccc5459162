package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/cuelight/cuelight/internal/fetch"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

// sourceOf makes of what a person typed what a task needs: the same file
// whatever the working directory of those who read it, in UTF-8.
func sourceOf(arg, workingDir string) (string, error) {
	if arg == "" {
		return "", usererr.Usagef("an empty name is not a file")
	}
	if arg == "-" {
		return "", usererr.Usagef(`standard input cannot be a source: name a file, or ./- for one that is called "-"`)
	}
	if isURL(arg) {
		source := escapeInvalid(arg)
		if err := fetch.CheckSource(source); err != nil {
			return "", usererr.Usagef("%s: %v", shownSource(arg), err)
		}
		return source, nil
	}
	path := arg
	if !filepath.IsAbs(path) {
		// Not cleaned: where "a" is a symbolic link, "a/../b" is not "b".
		path = strings.TrimSuffix(workingDir, "/") + "/" + strings.TrimPrefix(path, "./")
	}
	return sourceOfPath(path), nil
}

// sourceOfPath is sourceOf for an absolute path.
func sourceOfPath(path string) string {
	if strings.ToValidUTF8(path, "") == path {
		return path
	}
	return "file://" + escapePath(path)
}

// isURL: a scheme and "://", the same rule by which the ingest stage decides.
func isURL(s string) bool {
	scheme, _, ok := strings.Cut(s, "://")
	if !ok || scheme == "" {
		return false
	}
	for i, r := range scheme {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || !(r >= '0' && r <= '9') && !strings.ContainsRune("+.-", r)) {
			return false
		}
	}
	return true
}

// shownSource is a source's public form, for people.
func shownSource(source string) string { return usererr.Printable(redact.Source(source)) }

// shownTask is what a task is called, if its submitter calls it anything, or else
// its source.
func shownTask(t store.Task) string {
	if title := t.Title(); title != "" {
		return usererr.Printable(title)
	}
	return shownSource(t.Source)
}

// labelOf is the last part of a source's name, for people.
func labelOf(source string) string { return usererr.Printable(redact.Name(source)) }

// escapePath percent-encodes all that is not certainly itself in a URL's path.
func escapePath(path string) string {
	var b strings.Builder
	for i := range len(path) {
		ch := path[i]
		plain := ch >= 'a' && ch <= 'z' || ch >= 'A' && ch <= 'Z' || ch >= '0' && ch <= '9' || strings.IndexByte("/-._~", ch) >= 0
		if plain {
			b.WriteByte(ch)
		} else {
			fmt.Fprintf(&b, "%%%02X", ch)
		}
	}
	return b.String()
}

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
