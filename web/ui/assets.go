package ui

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed assets templates
var files embed.FS

// assets serves the files that pages load. Addresses have the hash of the content, so
// browsers can cache them forever.
type assets struct {
	base   string
	hashes map[string]string
	build  string // the hash of all assets
}

func newAssets(base string) (assets, error) {
	a := assets{base: base, hashes: make(map[string]string)}
	all := sha256.New()
	err := fs.WalkDir(files, "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(text)
		all.Write(sum[:])
		a.hashes[strings.TrimPrefix(name, "assets/")] = base64.RawURLEncoding.EncodeToString(sum[:9])
		return nil
	})
	if err != nil {
		return a, fmt.Errorf("dashboard: read assets: %w", err)
	}
	a.build = base64.RawURLEncoding.EncodeToString(all.Sum(nil)[:9])
	return a, nil
}

func (a assets) address(name string) (string, error) {
	hash, ok := a.hashes[name]
	if !ok {
		return "", fmt.Errorf("unknown asset %q", name)
	}
	return a.base + "/assets/" + name + "?" + hash, nil
}

var contentTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
	".json": "application/json", ".LICENSE": "text/plain; charset=utf-8",
}

func (a assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/assets/")
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
	http.ServeFileFS(w, r, files, "assets/"+name)
}
