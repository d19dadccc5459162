package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cuelight/cuelight/store"
)

// data is what a page's template is given.
type pageData struct {
	screen
	Page    string
	Live    string // the address of its stream
	Viewer  Viewer
	Theme   string
	Said    string // what an action had to say
	Asked   any    // what the address says
	Here    string // the page's own address
	Problem string
	Uploads string
	Version string
	Logout  string
	Login   string
	Build   string
	Can     permissions
}

// can is what the viewer may do, where there is somebody to do it.
type permissions struct{ Submit, Operate bool }

func (u *UI) permissions(v Viewer) permissions {
	return permissions{v.Submit && u.o.Actions != nil, v.Operate && u.o.Actions != nil}
}

// Part and All are a screen's pieces, for the page that is sent whole.
func (d pageData) Part(id string) template.HTML  { return d.fragment(id) }
func (d pageData) All(list string) template.HTML { return d.list(list) }
func (d pageData) Title() string                 { return d.title }

// parseTemplates makes a template per page, each within the layout.
func (u *UI) parseTemplates() (map[string]*template.Template, error) {
	common, err := template.New("").Funcs(u.functions()).ParseFS(files, "templates/layout.html", "templates/pieces.html")
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	pages := map[string]*template.Template{"": common}
	for _, name := range []string{"board", "video", "workers", "dead", "latency", "login", "ask", "problem"} {
		t, err := template.Must(common.Clone()).ParseFS(files, "templates/"+name+".html")
		if err != nil {
			return nil, fmt.Errorf("dashboard: %w", err)
		}
		pages[name] = t
	}
	return pages, nil
}

func (u *UI) functions() template.FuncMap {
	return template.FuncMap{
		"base": func() string { return u.o.Base }, "asset": u.assets.address,
		"span": formatDuration, "many": count, "number": formatInt, "about": approximate,
		"printable": printable, "iso": iso, "absolute": absolute, "short": short,
		"word":          func(s store.Status) string { return statusWords[s] },
		"stages":        func() []string { return u.layout.stages },
		"stageStatuses": func() []store.Status { return stageStatuses },
		"icon":          func(name any) template.HTML { return icon(fmt.Sprint(name)) },
		"tabs":          func(f boardFilters) any { return f.tabs(u.o.Base) },
	}
}

// icon shows one of the symbols at the head of each page. What it means is said
// beside it.
func icon(name string) template.HTML {
	return template.HTML(`<svg class="icon" aria-hidden="true"><use href="#i-` + template.HTMLEscapeString(name) + `"/></svg>`)
}

func iso(t time.Time) string      { return t.UTC().Format(time.RFC3339) }
func absolute(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04:05 UTC") }

// short is a time without what goes without saying.
func short(t time.Time) string { return t.UTC().Format("2 Jan 15:04:05") }

// drawing makes the parts of a screen.
type fragmentRenderer struct {
	pieces    *template.Template
	fragments []fragment
	err       error
}

func (u *UI) newRenderer() *fragmentRenderer { return &fragmentRenderer{pieces: u.pages[""]} }

// part renders one more.
func (d *fragmentRenderer) add(id, list, piece string, with any) {
	if d.err != nil {
		return
	}
	var b bytes.Buffer
	d.err = d.pieces.ExecuteTemplate(&b, piece, with)
	d.fragments = append(d.fragments, fragment{id, list, b.String()})
}

func (d *fragmentRenderer) screen(title string) (screen, error) {
	if d.err != nil {
		return screen{}, fmt.Errorf("%w %s: %w", errRender, title, d.err)
	}
	return newScreen(title, d.fragments), nil
}

// load reads and renders what a key names.
func (u *UI) load(ctx context.Context, k viewKey) (screen, error) {
	switch k.page {
	case "board":
		return u.loadBoard(ctx, k)
	case "video":
		return u.loadVideo(ctx, k)
	case "workers":
		return u.loadWorkers(ctx, k)
	case "dead":
		return u.loadDead(ctx, k)
	case "latency":
		return u.loadLatency(ctx, k)
	}
	return screen{}, fmt.Errorf("there is no page %q", k.page)
}

// show sends a page.
func (u *UI) servePage(w http.ResponseWriter, r *http.Request, k viewKey, asked any) {
	who := u.o.Viewer(r.Context())
	k = u.viewKey(k.page, k.query, who)
	s, err := u.hub.read(r.Context(), k, who.Name)
	if err != nil {
		u.serveError(w, r, err) // the hub has told of it
		return
	}
	d := u.pageData(w, r)
	d.screen, d.Page, d.Asked = s, k.page, asked
	live := url.Values{"page": {k.page}, "for": {k.query}, "at": {s.version}}
	d.Live = u.o.Base + "/live?" + live.Encode()
	u.render(w, http.StatusOK, k.page, d)
}

// keyOf is what somebody looks at.
func (u *UI) viewKey(page, query string, who Viewer) viewKey {
	c := u.permissions(who)
	return viewKey{page: page, query: query, canOperate: c.Operate, canUpload: page == "board" && c.Submit && u.o.Uploads != ""}
}

func (u *UI) pageData(w http.ResponseWriter, r *http.Request) pageData {
	v := u.o.Viewer(r.Context())
	return pageData{
		Viewer: v, Can: u.permissions(v), Theme: themeOf(r), Said: takeMessage(w, r, u.o.Base), Here: u.o.Base + r.URL.RequestURI(),
		Version: u.o.Version, Logout: u.o.Logout, Login: u.o.Login, Uploads: u.o.Uploads, Build: u.assets.build,
	}
}

// send renders all of a page before the first byte is sent.
func (u *UI) render(w http.ResponseWriter, status int, page string, d pageData) {
	var b bytes.Buffer
	if err := u.pages[page].ExecuteTemplate(&b, "layout", d); err != nil {
		u.reportError(page, fmt.Errorf("%w %s: %w", errRender, page, err))
		http.Error(w, "This page could not be rendered.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // who went away is not told
}

// problem says what went wrong, also to whoever looks after the program.
func (u *UI) fail(w http.ResponseWriter, r *http.Request, err error) {
	u.reportError(r.Pattern, err)
	u.serveError(w, r, err)
}

// refuse says what went wrong.
func (u *UI) serveError(w http.ResponseWriter, r *http.Request, err error) {
	status, text := errorResponse(err)
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	if wantsJSON(r) {
		u.writeJSON(w, status, text)
		return
	}
	d := u.pageData(w, r)
	if status == http.StatusServiceUnavailable && r.Method == http.MethodGet {
		w.Header().Set("Refresh", refreshAfter(err)) // by itself
	}
	d.screen, d.Problem = screen{title: http.StatusText(status)}, text
	u.render(w, status, "problem", d)
}

// comesBack is after how many seconds a page that cannot be read is asked for again.
// One that takes too long will do so then, too: it is left in peace for most of the
// time.
func refreshAfter(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "60"
	}
	return "10"
}

// errors that are a page's own.
var (
	errForbidden  = fmt.Errorf("%w: your access is read-only", ErrForbidden)
	errIncomplete = errors.New("the form is incomplete")
	errRender     = errors.New("draw")
)

// ErrForbidden is what [Actions] return, within an error that says why, where
// somebody may not do what they ask for.
var ErrForbidden = errors.New("forbidden")

// explain is the status of an error, and what a person can do with it.
func errorResponse(err error) (status int, text string) {
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, errNoPage):
		return http.StatusNotFound, "This page does not exist. The video may have been deleted."
	case errors.Is(err, store.ErrWorkerUnknown):
		return http.StatusNotFound, "This worker has stopped or is lost."
	case errors.Is(err, store.ErrOverridden):
		return http.StatusConflict, "This video was replaced by another one and is not processed again."
	case errors.Is(err, store.ErrNoStage), errors.Is(err, store.ErrInvalid), errors.Is(err, errIncomplete):
		return http.StatusUnprocessableEntity, "The request is not valid: " + err.Error() + "."
	case errors.Is(err, errForbidden):
		return http.StatusForbidden, "Your access is read-only: you cannot change anything."
	case errors.Is(err, ErrForbidden):
		return http.StatusForbidden, "You do not have permission: " + strings.TrimPrefix(err.Error(), ErrForbidden.Error()+": ") + "."
	case errors.Is(err, errTooManyPages):
		return http.StatusServiceUnavailable, "Too many pages are open. This page does not update by itself."
	case errors.Is(err, errRender):
		return http.StatusInternalServerError, "This page could not be rendered. This is a bug in Cuelight; its log has the error."
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable, "Reading this page took too long. Try a narrower filter."
	}
	return http.StatusServiceUnavailable, "The database is not available. Processing continues when it is available again."
}

var errNoPage = errors.New("no such page")

func (u *UI) serveNotFound(w http.ResponseWriter, r *http.Request) { u.fail(w, r, errNoPage) }

func (u *UI) serveLogin(w http.ResponseWriter, r *http.Request) {
	d := u.pageData(w, r)
	d.screen, d.Page = screen{title: "Sign in"}, "login"
	asked := r.URL.Query()
	wait, _ := strconv.Atoi(asked.Get("wait")) // 0 is not said
	d.Asked = map[string]any{"Failed": asked.Get("failed"), "Wait": max(wait, 0), "Next": localPath(asked.Get("next"))}
	u.render(w, http.StatusOK, "login", d)
}

// themes are what people can choose; the empty one is what their system has.
var themes = []string{"", "light", "dark"}

const themeCookie = "cuelight_theme"

func themeOf(r *http.Request) string {
	if c, err := r.Cookie(themeCookie); err == nil && slices.Contains(themes, c.Value) {
		return c.Value
	}
	return ""
}

func (u *UI) serveTheme(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 8<<10) // it is for everybody, and a form in parts would go to the disk
	next := themes[(slices.Index(themes, themeOf(r))+1)%len(themes)]
	http.SetCookie(w, &http.Cookie{Name: themeCookie, Value: next, Path: u.o.Base + "/", MaxAge: 400 * 24 * 3600, SameSite: http.SameSiteLaxMode})
	u.redirectBack(w, r)
}

// answer is what a script gets.
func (u *UI) writeJSON(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"ok": status < 400, "text": text}) // who went away is not told
}
