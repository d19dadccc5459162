package ui

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	beatEvery   = 10 * time.Second // so that both ends know that the other is there
	writeWithin = 15 * time.Second // else the browser is not there any more
)

// live is the stream of an open page: a hello, what has changed since the page was
// made, and then what changes. A message without a name is HTML to be put in place;
// stale and fresh say whether the page can be read.
func (u *UI) live(w http.ResponseWriter, r *http.Request) {
	asked := r.URL.Query()
	who := u.o.Viewer(r.Context())
	k := u.keyOf(asked.Get("page"), asked.Get("for"), who)
	if k.query = k.values().Encode(); len(k.query) > 4096 || !livePages[k.page] {
		u.problem(w, r, errNoPage)
		return
	}
	at := asked.Get("at")
	if seen := r.Header.Get("Last-Event-ID"); seen != "" {
		at = seen
	}
	if at = clean(at); strings.ContainsAny(at, "\r\n") || len(at) > 64 {
		at = ""
	}
	v, p, err := u.hub.join(r.Context(), k, who.Name, at)
	if err != nil {
		u.problem(w, r, err)
		return
	}
	defer u.hub.leave(v, p)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	out := stream{w, http.NewResponseController(w)}
	if out.send(message("hello", at, u.greeting())) != nil {
		return
	}
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		var text string
		select {
		case <-r.Context().Done():
			return
		case <-u.hub.ended():
			return
		case <-beat.C:
			text = message("beat", "", u.beat(v))
		case text = <-p.changes:
		}
		if all, lost := u.hub.caughtUp(v, p); lost {
			text = all
		}
		if out.send(text) != nil {
			return
		}
	}
}

// greeting is what the page is told first. Ages are told by the server's clock,
// whatever the browser's says.
func (u *UI) greeting() string {
	text, _ := json.Marshal(map[string]any{"build": u.assets.build, "now": time.Now().UnixMilli()}) // a string and a number
	return string(text)
}

// beat says when what the page shows was read.
func (u *UI) beat(v *view) string {
	read, late := u.hub.age(v)
	at := int64(0) // never
	if !read.IsZero() {
		at = read.UnixMilli()
	}
	text, _ := json.Marshal(map[string]any{"now": time.Now().UnixMilli(), "read": at, "late": late}) // numbers
	return string(text)
}

var livePages = map[string]bool{"board": true, "video": true, "workers": true, "dead": true, "latency": true}

// stream writes messages, each in its own time.
type stream struct {
	to      io.Writer
	control *http.ResponseController
}

func (s stream) send(text string) error {
	// A writer that knows no deadlines is a test's.
	_ = s.control.SetWriteDeadline(time.Now().Add(writeWithin))
	if _, err := io.WriteString(s.to, text); err != nil {
		return err
	}
	return s.control.Flush()
}
