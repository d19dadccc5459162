// Package assets serves the files that pages load. Their addresses have the hash of the content, so browsers can cache them for ever.
package assets

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"path"
)

// Files are served at Prefix and a name. A route serves them with the path value "name".
type Files struct {
	// Build is the hash of all.
	Build string

	files  fs.FS
	prefix string
	hashes map[string]string // by name
}

// New reads files, whose addresses begin with a prefix such as "/cuelight/assets/".
func New(files fs.FS, prefix string) (Files, error) {
	a := Files{files: files, prefix: prefix, hashes: make(map[string]string)}
	all := sha256.New()
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(text)
		all.Write(sum[:])
		a.hashes[name] = base64.RawURLEncoding.EncodeToString(sum[:9])
		return nil
	})
	if err != nil {
		return a, fmt.Errorf("read assets: %w", err)
	}
	a.Build = base64.RawURLEncoding.EncodeToString(all.Sum(nil)[:9])
	return a, nil
}

// Address returns the address of a file.
func (a Files) Address(name string) (string, error) {
	hash, ok := a.hashes[name]
	if !ok {
		return "", fmt.Errorf("unknown asset %q", name)
	}
	return a.prefix + name + "?" + hash, nil
}

var contentTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
	".json": "application/json", ".LICENSE": "text/plain; charset=utf-8",
}

// ServeHTTP serves the file that the path value "name" names.
func (a Files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	hash, ok := a.hashes[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", contentTypes[path.Ext(name)])
	w.Header().Set("Etag", `"`+hash+`"`)
	w.Header().Set("Cache-Control", "no-cache")
	if r.URL.RawQuery == hash {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeFileFS(w, r, a.files, name)
}
