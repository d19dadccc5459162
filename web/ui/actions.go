package ui

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/cuelight/cuelight/store"
)

// action is something that can be done: what is asked before, and the doing. Both
// take what the address or the form says.
type action struct {
	ask func(u *UI, r *http.Request) (confirmation, error)
	do  func(u *UI, ctx context.Context, r *http.Request) (said string, err error)
}

// question is what stands on the page, or in the dialog, that asks.
type confirmation struct {
	Title, Text string
	Button      string
	Danger      bool
	To          string // where the form is posted to
	Fields      []field
	From        []string // stages to choose from, if any
	Source      string   // what to call the field for one; without it there is none
	Command     string   // that does the same
	Back        string
	Nothing     bool // there is nothing to do
}

type field struct{ Name, Value string }

// maySubmit and mayOperate say who may.
func maySubmit(c permissions) bool  { return c.Submit }
func mayOperate(c permissions) bool { return c.Operate }

// ask shows the page that asks.
func (u *UI) serveConfirmation(ask func(*UI, *http.Request) (confirmation, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := u.permissions(u.o.Viewer(r.Context()))
		if !c.Operate && !(c.Submit && r.URL.Path == "/add") {
			u.fail(w, r, errForbidden)
			return
		}
		q, err := ask(u, r)
		if err != nil {
			u.fail(w, r, err)
			return
		}
		if q.Back == "" {
			q.Back = u.returnPath(r)
		}
		d := u.pageData(w, r)
		d.screen, d.Page, d.Asked = screen{title: q.Title}, "ask", q
		u.render(w, http.StatusOK, "ask", d)
	}
}

// act does it, and answers with a redirect, or with JSON to a script.
func (u *UI) serveAction(may func(permissions) bool, do func(*UI, context.Context, *http.Request) (string, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !may(u.permissions(u.o.Viewer(r.Context()))) {
			u.fail(w, r, errForbidden)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, 256<<10)
		if err := r.ParseForm(); err != nil {
			u.fail(w, r, fmt.Errorf("%w: %w", errIncomplete, err))
			return
		}
		text, err := do(u, r.Context(), r)
		if err != nil {
			u.fail(w, r, err)
			return
		}
		u.overview.invalidate()
		u.workers.invalidate()
		u.pauses.invalidate()
		u.hub.invalidate()
		u.hub.redrawAll()
		if wantsJSON(r) {
			u.writeJSON(w, http.StatusOK, text)
			return
		}
		http.SetCookie(w, &http.Cookie{
			Name: messageCookie, Value: base64.RawURLEncoding.EncodeToString([]byte(truncate(text))),
			Path: u.o.Base + "/", MaxAge: 60, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		})
		u.redirectBack(w, r)
	}
}

// saidCookie carries what an action had to say over the redirect that follows it.
const messageCookie = "cuelight_said"

// saidMost is how much that can be, in bytes.
const maxMessage = 500

// cut leaves out the end of what is too long.
func truncate(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	const more = "…"
	return strings.ToValidUTF8(text[:maxMessage-len(more)], "") + more
}

func takeMessage(w http.ResponseWriter, r *http.Request, base string) string {
	c, err := r.Cookie(messageCookie)
	if err != nil {
		return ""
	}
	http.SetCookie(w, &http.Cookie{Name: messageCookie, Path: base + "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteLaxMode})
	text, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil || len(text) > maxMessage {
		return ""
	}
	return printable(string(text))
}

func wantsJSON(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "application/json")
}

// back sends the browser where it came from.
func (u *UI) redirectBack(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, u.returnPath(r), http.StatusSeeOther)
}

// backTo is the page of this dashboard that the form names, or that the link was
// on.
func (u *UI) returnPath(r *http.Request) string {
	if to := localPath(r.FormValue("back")); to != "" {
		return to
	}
	if from, err := url.Parse(r.Referer()); err == nil && from.Host == r.Host {
		if to := localPath(from.RequestURI()); to != "" && from.Path != r.URL.Path {
			return to
		}
	}
	return u.o.Base + "/"
}

// localPath is a path on this server, and nothing else.
func localPath(s string) string {
	to, err := url.Parse(s)
	if err != nil || to.IsAbs() || to.Host != "" || to.User != nil || !strings.HasPrefix(s, "/") ||
		strings.HasPrefix(s, "//") || strings.ContainsAny(s, "\\\r\n\t") {
		return ""
	}
	return s
}

func pathID(r *http.Request) (store.ID, error) {
	id, err := store.ParseID(r.PathValue("id"))
	if err != nil {
		return id, fmt.Errorf("%w: %w", store.ErrNotFound, err)
	}
	return id, nil
}

// asked reads the task that an action is about.
func (u *UI) taskOf(r *http.Request) (store.Task, error) {
	id, err := pathID(r)
	if err != nil {
		return store.Task{}, err
	}
	return u.o.Store.Get(r.Context(), id)
}
