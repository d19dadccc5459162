// Package embed is the page with a player for one published video, for frames of other sites.
//
// Create a [Player] with [New], serve it at Prefix and a name, and call [Player.Write] for each page. The page needs the addresses of a
// [playback.Video], and loads nothing from elsewhere. It offers sizes, speed, captions, languages and chapters, shows pictures of the
// storyboard on the bar, and begins at the query's t, in seconds. It has no address of the API and no name but the title.
package embed

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"

	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/web/internal/assets"
)

//go:embed assets page.html
var files embed.FS

// policy lets any page have this one in a frame. The controls need styles of their own, and the player a worker from a blob.
const policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; " +
	"media-src 'self' blob: data:; connect-src 'self'; worker-src blob:; frame-ancestors *; base-uri 'none'; form-action 'none'"

// Player writes pages, and serves the files that they load: see [assets.Files].
type Player struct {
	assets.Files
	page *template.Template
}

// New returns a Player whose files are served at prefix, such as "/player/".
func New(prefix string) (*Player, error) {
	dir, err := fs.Sub(files, "assets")
	if err != nil {
		return nil, err
	}
	p := &Player{}
	if p.Files, err = assets.New(dir, prefix); err != nil {
		return nil, err
	}
	p.page, err = template.New("page.html").Funcs(template.FuncMap{"asset": p.Address}).ParseFS(files, "page.html")
	if err != nil {
		return nil, fmt.Errorf("parse page of the player: %w", err)
	}
	return p, nil
}

// Page is what a page shows: a video, or an error.
type Page struct {
	Title string // empty if the video has none
	Video *playback.Video
	Error string
}

// Write responds with a page.
func (p *Player) Write(w http.ResponseWriter, status int, page Page) error {
	var body bytes.Buffer
	if err := p.page.Execute(&body, page); err != nil {
		return fmt.Errorf("write page of the player: %w", err)
	}
	h := w.Header()
	h.Del("X-Frame-Options")
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // fails only if the client has disconnected
	return nil
}
