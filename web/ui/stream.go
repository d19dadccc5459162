package ui

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	heartbeatInterval = 10 * time.Second // so that both ends know that the other is there
	writeTimeout      = 15 * time.Second // else the browser is not there any more
)

// live is the stream of an open page: a hello, what has changed since the page was
// made, and then what changes. A message without a name is HTML to be put in place;
// stale and fresh say whether the page can be read.
func (u *UI) serveStream(w http.ResponseWriter, r *http.Request) {
	asked := r.URL.Query()
	who := u.o.Viewer(r.Context())
	k := u.viewKey(asked.Get("page"), asked.Get("for"), who)
	if k.query = k.values().Encode(); len(k.query) > 4096 || !isLivePage[k.page] {
		u.fail(w, r, errNoPage)
		return
	}
	at := asked.Get("at")
	if seen := r.Header.Get("Last-Event-ID"); seen != "" {
		at = seen
	}
	if at = cleanText(at); strings.ContainsAny(at, "\r\n") || len(at) > 64 {
		at = ""
	}
	v, p, err := u.hub.subscribe(r.Context(), k, who.Name, at)
	if err != nil {
		u.fail(w, r, err)
		return
	}
	defer u.hub.unsubscribe(v, p)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	out := eventWriter{w, http.NewResponseController(w)}
	if out.send(message("hello", at, u.helloData())) != nil {
		return
	}
	beat := time.NewTicker(heartbeatInterval)
	defer beat.Stop()
	for {
		var text string
		select {
		case <-r.Context().Done():
			return
		case <-u.hub.done():
			return
		case <-beat.C:
			text = message("beat", "", u.heartbeatData(v))
		case text = <-p.changes:
		}
		if all, lost := u.hub.resync(v, p); lost {
			text = all
		}
		if out.send(text) != nil {
			return
		}
	}
}

// greeting is what the page is told first. Ages are told by the server's clock,
// whatever the browser's says.
func (u *UI) helloData() string {
	text, _ := json.Marshal(map[string]any{"build": u.assets.build, "now": time.Now().UnixMilli()}) // a string and a number
	return string(text)
}

// beat says when what the page shows was read.
func (u *UI) heartbeatData(v *view) string {
	read, late := u.hub.readTime(v)
	at := int64(0) // never
	if !read.IsZero() {
		at = read.UnixMilli()
	}
	text, _ := json.Marshal(map[string]any{"now": time.Now().UnixMilli(), "read": at, "late": late}) // numbers
	return string(text)
}

var isLivePage = map[string]bool{"board": true, "video": true, "workers": true, "dead": true, "latency": true}

// stream writes messages, each in its own time.
type eventWriter struct {
	to      io.Writer
	control *http.ResponseController
}

func (s eventWriter) send(text string) error {
	// A writer that knows no deadlines is a test's.
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := io.WriteString(s.to, text); err != nil {
		return err
	}
	return s.control.Flush()
}
