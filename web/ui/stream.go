package ui

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	pingInterval = 10 * time.Second // of an open stream
	writeTimeout = 15 * time.Second // of one message
)

var livePages = map[string]bool{"board": true, "video": true, "workers": true, "dead": true, "latency": true}

// serveStream is the stream of an open page. It sends the event open, then the changes
// since the page was rendered, then each further change. A message without an event name
// is HTML to swap in; stale and fresh say whether the view can be read; ping says that
// the connection is open, and when the view was read.
func (u *UI) serveStream(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	viewer := u.o.Viewer(r.Context())
	k := u.viewKey(query.Get("page"), query.Get("for"), viewer)
	if k.query = k.values().Encode(); len(k.query) > 4096 || !livePages[k.page] {
		u.fail(w, r, errNoPage)
		return
	}
	version := query.Get("at")
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		version = last
	}
	if version = cleanText(version); strings.ContainsAny(version, "\r\n") || len(version) > 64 {
		version = ""
	}
	s, err := u.hub.subscribe(r.Context(), k, viewer.Name, version)
	if err != nil {
		u.fail(w, r, err)
		return
	}
	defer s.close()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	if sendMessage(w, message("open", version, eventData(map[string]any{"build": u.assets.Build}))) != nil {
		return
	}
	u.sendUpdates(w, r, s)
}

// sendUpdates sends the updates of a view until the request or the dashboard ends.
func (u *UI) sendUpdates(w http.ResponseWriter, r *http.Request, s *subscriber) {
	ping := time.NewTicker(pingInterval)
	defer ping.Stop()
	for {
		text, changed := s.next()
		if text == "" {
			select {
			case <-r.Context().Done():
				return
			case <-u.hub.stopped:
				return
			case <-changed:
				continue
			case <-ping.C:
				text = message("ping", "", pingData(s))
			}
		}
		if sendMessage(w, text) != nil {
			return
		}
	}
}

// pingData says when the screen was read; 0 is never.
func pingData(s *subscriber) string {
	at, isLate := s.readTime()
	read := int64(0)
	if !at.IsZero() {
		read = at.UnixMilli()
	}
	return eventData(map[string]any{"read": read, "late": isLate})
}

// eventData is JSON with the server's time: pages show ages by the server's clock.
func eventData(data map[string]any) string {
	data["now"] = time.Now().UnixMilli()
	text, _ := json.Marshal(data) // numbers, strings and booleans
	return string(text)
}

// message is a server-sent event. Its id is the version of the page after it; a
// browser that reconnects sends the last one.
func message(event, id, data string) string {
	var b strings.Builder
	if id != "" {
		b.WriteString("id: " + id + "\n")
	}
	if event != "" {
		b.WriteString("event: " + event + "\n")
	}
	for line := range strings.SplitSeq(strings.ReplaceAll(data, "\r", "&#13;"), "\n") {
		b.WriteString("data: " + line + "\n")
	}
	b.WriteString("\n")
	return b.String()
}

func sendMessage(w http.ResponseWriter, text string) error {
	c := http.NewResponseController(w)
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout)) // the writers of tests have no deadlines
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	return c.Flush()
}
