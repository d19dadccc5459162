package browsertest

import (
	"cmp"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"
)

// Video is a directory with a published video, and its length.
type Video struct {
	Dir      string
	Address  string // of the directory, if another server has it; such a video is played with hls.js only
	Length   time.Duration
	Captions []Captions // that players must show; nil: not looked at
	// Codec is the beginning of the codec that players must choose, such as "av01"; empty: any.
	Codec string
}

// Captions are a track in the order of the manifests. A cue is its start and end in seconds with two decimals, and its
// text: "1.00 3.50 Hello".
type Captions struct {
	Language string   `json:"language"`
	Label    string   `json:"label"`
	Cues     []string `json:"cues"`
}

// PlayOptions are options of [Browser.Play].
type PlayOptions struct {
	// Seeks names the videos in which players first seek to ten times at random, and change the size with each.
	Seeks []string
	// Rate is the speed; 0 is 4 times the normal one.
	Rate float64
	// Timeout is for one video in one player; 0 is two minutes.
	Timeout time.Duration
	// Hold is called by each player when it has begun. It pauses until Hold returns.
	Hold func()
}

// Play plays videos to their end in hls.js and in dash.js. The test must be one of a package in
// internal.
func (b Browser) Play(t testing.TB, videos map[string]Video, o PlayOptions) {
	t.Helper()
	mux, lengths, captions := http.NewServeMux(), make(map[string]float64), make(map[string][]Captions)
	codecs, addresses := make(map[string]string), make(map[string]string)
	for name, v := range videos {
		lengths[name], codecs[name] = v.Length.Seconds(), v.Codec
		if v.Captions != nil {
			captions[name] = v.Captions
		}
		addresses[name] = cmp.Or(v.Address, "/"+name)
		mux.Handle("GET /"+name+"/", http.StripPrefix("/"+name, http.FileServer(http.Dir(v.Dir))))
	}
	for name, file := range map[string]string{
		"/hls.js":  b.Module("hls.js/dist/hls.min.js"),
		"/dash.js": b.Module("dashjs/dist/modern/umd/dash.all.min.js"),
	} {
		mux.HandleFunc("GET "+name, func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) })
	}
	mux.HandleFunc("GET /blank", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<!doctype html><link rel="icon" href="data:,"><body>`)
	})
	mux.HandleFunc("GET /hold", func(http.ResponseWriter, *http.Request) { o.Hold() })
	server := httptest.NewServer(mux)
	defer server.Close()
	if o.Rate == 0 {
		o.Rate = 4
	}
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Minute
	}
	b.Run(t, filepath.Join("..", "browsertest", "players.mjs"), map[string]any{
		"address": server.URL, "clips": lengths, "captions": captions, "codecs": codecs, "addresses": addresses,
		"seeks": append([]string{}, o.Seeks...),
		"rate":  o.Rate, "within": o.Timeout.Milliseconds(), "hold": o.Hold != nil,
	})
}
