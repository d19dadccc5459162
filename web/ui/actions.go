package ui

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/cuelight/cuelight/store"
)

// action is something that a viewer can do: a page that asks for confirmation, and the
// execution, which returns a message for the viewer.
type action struct {
	maxForm   int64 // bytes; 0 for maxForm
	isAllowed func(Viewer) bool
	confirm   func(u *UI, r *http.Request) (confirmation, error)
	do        func(u *UI, ctx context.Context, r *http.Request) (message string, err error)
}

// maxForm is the greatest size of a form, in bytes.
const maxForm = 256 << 10

func maySubmit(v Viewer) bool  { return v.Submit }
func mayOperate(v Viewer) bool { return v.Operate }

// confirmation is the page, or the dialog, that asks before an action.
type confirmation struct {
	Title, Text string
	Button      string // "" if there is nothing to do
	IsDanger    bool
	Action      string // the address that the form is posted to
	Fields      []field
	Stages      []string // to choose from, if any
	Fresh       string   // the label of a choice to keep no completed parts, if any
	Renditions  []int    // heights to choose from, if any
	SourceLabel string   // of the input for a source, if any
	Choice      []string // of profiles, if any
	Check       field    // a checkbox with its label, if any
	Edit        *editForm
	LeavesPage  bool   // afterwards the page that the viewer came from does not exist, or is another
	Next        string // the page to show afterwards. Default: Back
	Command     string // the same action in a shell
	Back        string // Default: the page that the viewer came from
}

// field is a hidden input of a form.
type field struct{ Name, Value string }

// serveConfirmation shows the confirmation of an action.
func (u *UI) serveConfirmation(a action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !a.isAllowed(u.o.Viewer(r.Context())) {
			u.fail(w, r, errReadOnly)
			return
		}
		c, err := a.confirm(u, r)
		if err != nil {
			u.fail(w, r, err)
			return
		}
		if c.Back == "" {
			c.Back = u.returnPath(r)
		}
		d := u.pageData(w, r)
		d.screen, d.Page, d.Input = screen{title: c.Title}, "confirm", c
		u.render(w, http.StatusOK, "confirm", d)
	}
}

// serveAction executes an action. It answers with a redirect, or a script with JSON.
func (u *UI) serveAction(a action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !a.isAllowed(u.o.Viewer(r.Context())) {
			u.fail(w, r, errReadOnly)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, cmp.Or(a.maxForm, maxForm))
		if err := r.ParseMultipartForm(maxForm); err != nil && !errors.Is(err, http.ErrNotMultipart) {
			u.fail(w, r, fmt.Errorf("%w: %w", errIncomplete, err))
			return
		}
		if r.MultipartForm != nil {
			defer r.MultipartForm.RemoveAll()
		}
		text, err := a.do(u, r.Context(), r)
		if err != nil {
			u.fail(w, r, err)
			return
		}
		u.o.OnAction(r.Context())
		u.overview.Invalidate()
		u.current.Invalidate()
		u.hub.invalidate()
		if wantsJSON(r) {
			writeJSON(w, http.StatusOK, text)
			return
		}
		http.SetCookie(w, &http.Cookie{
			Name: messageCookie, Value: base64.RawURLEncoding.EncodeToString([]byte(truncate(text))),
			Path: u.o.BasePath + "/", MaxAge: 60, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		})
		u.redirectBack(w, r)
	}
}

const (
	messageCookie = "cuelight_message" // carries the message of an action over the redirect
	maxMessage    = 500                // bytes
)

func truncate(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	const ellipsis = "…"
	return strings.ToValidUTF8(text[:maxMessage-len(ellipsis)], "") + ellipsis
}

// takeMessage returns the message of the last action and deletes its cookie.
func takeMessage(w http.ResponseWriter, r *http.Request, base string) string {
	c, err := r.Cookie(messageCookie)
	if err != nil {
		return ""
	}
	http.SetCookie(w, &http.Cookie{
		Name: messageCookie, Path: base + "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
	text, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil || len(text) > maxMessage {
		return ""
	}
	return printable(string(text))
}

func wantsJSON(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "application/json")
}

func writeJSON(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"ok": status < 400, "text": text}) // the client may be gone
}

func (u *UI) redirectBack(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, u.returnPath(r), http.StatusSeeOther)
}

// returnPath returns the page that the form names, or the one with the link to the
// form.
func (u *UI) returnPath(r *http.Request) string {
	if to := localPath(r.FormValue("back")); to != "" {
		return to
	}
	if from, err := url.Parse(r.Referer()); err == nil && from.Host == r.Host {
		if to := localPath(from.RequestURI()); to != "" && from.Path != r.URL.Path {
			return to
		}
	}
	return u.o.BasePath + "/"
}

// localPath returns s if it is a path on this server, and else "".
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

// taskOf reads the task of an action.
func (u *UI) taskOf(r *http.Request) (store.Task, error) {
	id, err := pathID(r)
	if err != nil {
		return store.Task{}, err
	}
	return u.o.Store.Get(r.Context(), id)
}
