package ui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/cuelight/cuelight/store"
)

// pageData is the input of a page's template.
type pageData struct {
	screen
	Options
	Page    string
	Live    string // the address of the page's stream
	Viewer  Viewer
	Theme   string
	Message string // the result of an action
	Input   any    // from the page's query, or the confirmation
	Here    string // the page's own address
	Problem string
	Build   string
	Choice  []string // of profiles
}

// Title returns the title of the page's screen.
func (d pageData) Title() string { return d.title }

func (u *UI) pageData(w http.ResponseWriter, r *http.Request) pageData {
	return pageData{
		Options: u.o, Viewer: u.o.Viewer(r.Context()), Theme: themeOf(r), Build: u.assets.Build,
		Message: takeMessage(w, r, u.o.BasePath), Here: u.o.BasePath + r.URL.RequestURI(),
	}
}

// parseTemplates returns a template per page, and under "" the one of all fragments.
func (u *UI) parseTemplates() (map[string]*template.Template, error) {
	common, err := template.New("").Funcs(template.FuncMap{
		"base": func() string { return u.o.BasePath }, "asset": u.assets.Address,
		"duration": formatDuration, "count": count, "int": formatInt, "approx": approximate,
		"printable": printable, "shortID": shortID, "iso": iso, "absolute": absolute, "short": short, "icon": icon,
		"clock":         func(s float64) string { return formatClock(math.Floor(s)) },
		"capabilities":  capabilityTexts,
		"workerText":    workerText,
		"word":          func(s store.Status) string { return statusWords[s] },
		"stages":        func() []string { return u.layout.stages },
		"stageStatuses": func() []store.Status { return stageStatuses },
		"stateTabs":     func(q listQuery) []boardTab { return boardTabs(q, u.o.BasePath) },
	}).ParseFS(files, "templates/layout.html", "templates/fragments.html")
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	pages := map[string]*template.Template{"": common}
	for _, name := range []string{"board", "video", "workers", "dead", "latency", "login", "confirm", "key", "profiles", "captions", "deleted",
		"problem"} {
		t, err := template.Must(common.Clone()).ParseFS(files, "templates/"+name+".html")
		if err != nil {
			return nil, fmt.Errorf("dashboard: %w", err)
		}
		pages[name] = t
	}
	return pages, nil
}

// icon shows one of the symbols of the layout. The text next to it says the same.
func icon(name any) template.HTML {
	id := "i-" + template.HTMLEscapeString(fmt.Sprint(name))
	return template.HTML(`<svg class="icon" aria-hidden="true"><use href="#` + id + `"/></svg>`)
}

// fragmentRenderer renders the fragments of a screen. The first error stops it.
type fragmentRenderer struct {
	templates *template.Template
	fragments []fragment
	err       error
}

func (u *UI) newRenderer() *fragmentRenderer { return &fragmentRenderer{templates: u.pages[""]} }

func (r *fragmentRenderer) add(id, list, name string, data any) {
	if r.err != nil {
		return
	}
	var b bytes.Buffer
	r.err = r.templates.ExecuteTemplate(&b, name, data)
	r.fragments = append(r.fragments, fragment{id, list, b.String()})
}

func (r *fragmentRenderer) screen(title string) (screen, error) {
	if r.err != nil {
		return screen{}, fmt.Errorf("%w %s: %w", errRender, title, r.err)
	}
	return newScreen(title, r.fragments), nil
}

// load reads and renders a view.
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
	return screen{}, fmt.Errorf("unknown page %q", k.page)
}

func (u *UI) viewKey(page, query string, v Viewer) viewKey {
	return viewKey{page, query, v.Operate, page == "board" && v.Submit && u.o.Uploads != ""}
}

// servePage sends a page with a view and the address of its stream.
func (u *UI) servePage(w http.ResponseWriter, r *http.Request, page, query string, input any) {
	v := u.o.Viewer(r.Context())
	s, err := u.hub.read(r.Context(), u.viewKey(page, query, v), v.Name)
	if err != nil {
		u.serveError(w, r, err) // the hub has reported it
		return
	}
	d := u.pageData(w, r)
	d.screen, d.Page, d.Input = s, page, input
	if page == "board" && u.o.Uploads != "" {
		d.Choice = u.profileChoice(r)
	}
	d.Live = u.o.BasePath + "/live?" + url.Values{"page": {page}, "for": {query}, "at": {s.version}}.Encode()
	u.render(w, http.StatusOK, page, d)
}

// render sends a page. It renders all of it first, so that an error has its status.
func (u *UI) render(w http.ResponseWriter, status int, page string, d pageData) {
	var b bytes.Buffer
	if err := u.pages[page].ExecuteTemplate(&b, "layout", d); err != nil {
		u.reportError(page, page, fmt.Errorf("%w %s: %w", errRender, page, err))
		http.Error(w, "This page could not be rendered.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the client may be gone
}

// fail reports an error and shows it.
func (u *UI) fail(w http.ResponseWriter, r *http.Request, err error) {
	u.reportError(r.Pattern, r.Pattern, err)
	u.serveError(w, r, err)
}

// serveError shows an error.
func (u *UI) serveError(w http.ResponseWriter, r *http.Request, err error) {
	status, text := errorResponse(err)
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	if wantsJSON(r) {
		writeJSON(w, status, text)
		return
	}
	if status == http.StatusServiceUnavailable && r.Method == http.MethodGet {
		refresh := "10"
		if errors.Is(err, context.DeadlineExceeded) {
			refresh = "60" // it will probably be slow again
		}
		w.Header().Set("Refresh", refresh)
	}
	d := u.pageData(w, r)
	d.screen, d.Problem = screen{title: http.StatusText(status)}, text
	u.render(w, status, "problem", d)
}

var (
	errReadOnly   = fmt.Errorf("%w: your access is read-only", ErrForbidden)
	errIncomplete = errors.New("the form is incomplete")
	errRender     = errors.New("render")
	errNoPage     = errors.New("no such page")
)

// errorResponse returns the status of an error and a text for the user.
func errorResponse(err error) (status int, text string) {
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, errNoPage):
		return http.StatusNotFound, "This page does not exist. The video may have been deleted."
	case errors.Is(err, store.ErrWorkerUnknown):
		return http.StatusNotFound, "This worker has stopped or is lost."
	case errors.Is(err, store.ErrOverridden):
		return http.StatusConflict, "This video was replaced by another one and is not processed again."
	case errors.Is(err, store.ErrPurging):
		return http.StatusConflict, "This video is being purged and cannot be restored."
	case errors.Is(err, store.ErrUnpublishing):
		return http.StatusConflict, "The published files of this video are being removed. Try again in a minute."
	case errors.Is(err, store.ErrRequestIDTaken):
		return http.StatusConflict, "Another video was submitted with the same request id meanwhile. Delete that one first."
	case errors.Is(err, store.ErrNoStage), errors.Is(err, store.ErrInvalid), errors.Is(err, errIncomplete):
		return http.StatusUnprocessableEntity, "The request is not valid: " + err.Error() + "."
	case errors.Is(err, ErrForbidden):
		reason := strings.TrimPrefix(err.Error(), ErrForbidden.Error()+": ")
		return http.StatusForbidden, "You do not have permission: " + reason + "."
	case errors.Is(err, ErrTooManySubmissions):
		reason := strings.TrimPrefix(err.Error(), ErrTooManySubmissions.Error()+": ")
		return http.StatusTooManyRequests, "The video was not submitted: " + reason + "."
	case errors.Is(err, errTooManyPages):
		return http.StatusServiceUnavailable, "Too many pages are open. This page does not update by itself."
	case errors.Is(err, errRender):
		return http.StatusInternalServerError,
			"This page could not be rendered. This is a bug in Cuelight; its log has the error."
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable, "Reading this page took too long. Try a narrower filter."
	}
	return http.StatusServiceUnavailable,
		"The database is not available. Processing continues when it is available again."
}

func (u *UI) serveNotFound(w http.ResponseWriter, r *http.Request) { u.fail(w, r, errNoPage) }

func (u *UI) serveLogin(w http.ResponseWriter, r *http.Request) {
	d := u.pageData(w, r)
	d.screen, d.Page = screen{title: "Sign in"}, "login"
	query := r.URL.Query()
	wait, _ := strconv.Atoi(query.Get("wait")) // 0 is not shown
	d.Input = map[string]any{"Failed": query.Get("failed"), "Wait": max(wait, 0), "Next": localPath(query.Get("next"))}
	u.render(w, http.StatusOK, "login", d)
}

// themes are the choices of the theme button. The empty one follows the system.
var themes = []string{"", "light", "dark"}

const themeCookie = "cuelight_theme"

func themeOf(r *http.Request) string {
	if c, err := r.Cookie(themeCookie); err == nil && slices.Contains(themes, c.Value) {
		return c.Value
	}
	return ""
}

func (u *UI) serveTheme(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 8<<10) // unauthenticated: a multipart form could fill the disk
	next := themes[(slices.Index(themes, themeOf(r))+1)%len(themes)]
	http.SetCookie(w, &http.Cookie{
		Name: themeCookie, Value: next, Path: u.o.BasePath + "/", MaxAge: 400 * 24 * 3600, SameSite: http.SameSiteLaxMode,
	})
	u.redirectBack(w, r)
}
