package ui

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
)

const boardRows = 50

// stateTabs are the filters by state that have a link.
var stateTabs = []struct{ State, Word string }{
	{"", "All"}, {"running", "Running"}, {"ready", "Ready"}, {"scheduled", "Scheduled"}, {"retrying", "Retrying"},
	{"dead", "Dead"}, {"completed", "Completed"}, {"cancelled", "Cancelled"},
}

// boardTab is a link to a state, with all other filters unchanged.
type boardTab struct {
	Word, Link string
	IsCurrent  bool
}

func boardTabs(q listQuery, base string) (tabs []boardTab) {
	for _, t := range stateTabs {
		link := q.firstPage().with("state", t.State).link(base + "/")
		tabs = append(tabs, boardTab{t.Word, link, t.State == q.Get("state")})
	}
	return tabs
}

// readBoardQuery ignores values that are not valid.
func readBoardQuery(v url.Values) listQuery {
	q := readListQuery(v, "state", "q", "user", "stage", "status", "error")
	if v.Get("order") == "oldest" {
		q.Set("order", "oldest")
	}
	if !slices.ContainsFunc(stateTabs, func(t struct{ State, Word string }) bool { return t.State == q.Get("state") }) {
		q.Del("state")
	}
	switch {
	case !q.Has("stage"):
		q.Del("status")
	case !slices.Contains(stageStatuses, store.Status(q.Get("status"))):
		q.Set("status", string(store.StatusPending)) // the first option of the form
	}
	return q
}

func (q listQuery) boardQuery() store.ListQuery {
	b := store.ListQuery{OldestFirst: q.Get("order") == "oldest", Filter: store.Filter{
		Source: q.Get("q"), UserID: q.Get("user"), Stage: q.Get("stage"), Error: q.Get("error"),
		StageStatus: store.Status(q.Get("status")), After: q.after(), Limit: boardRows,
	}}
	switch state := q.Get("state"); state {
	case "completed", "cancelled":
		b.Status = store.Status(state)
	default:
		b.State = store.StateFilter(state)
	}
	return b
}

func (u *UI) serveBoard(w http.ResponseWriter, r *http.Request) {
	q := readBoardQuery(r.URL.Query())
	if id, ok := u.findByID(r.Context(), q.Get("q")); ok {
		http.Redirect(w, r, u.o.BasePath+"/videos/"+id.String(), http.StatusSeeOther)
		return
	}
	u.servePage(w, r, "board", q.Encode(), q)
}

// idSuffix matches an id, or its end as pages show it.
var idSuffix = regexp.MustCompile(`^…?([0-9a-f-]{8,36})$`)

// findByID returns the task with an id, or with an id that ends so.
func (u *UI) findByID(ctx context.Context, text string) (id store.ID, ok bool) {
	m := idSuffix.FindStringSubmatch(text)
	if m == nil {
		return id, false
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	id, err := u.o.Store.FindNewest(ctx, m[1])
	return id, err == nil // otherwise the text is searched in the sources
}

func (u *UI) loadBoard(ctx context.Context, k viewKey) (screen, error) {
	q := readBoardQuery(k.values())
	query := q.boardQuery()
	query.PublicSourceOnly = !k.canOperate // others see sources without their secrets
	tasks, next, err := report.Search(ctx, u.o.Store, query)
	if err != nil {
		return screen{}, err
	}
	c, err := u.readOverview(ctx)
	if err != nil {
		return screen{}, err
	}
	if c.current, err = u.withProgress(ctx, c.current, tasks...); err != nil {
		return screen{}, err
	}
	if c.current, err = u.withVideos(ctx, c.current, tasks...); err != nil {
		return screen{}, err
	}
	pages := q.pager(u.o.BasePath+"/", next)
	if at, ok := next.Time(); ok && len(tasks) < boardRows {
		pages.SearchedBack = &at
	}
	r := u.newRenderer()
	r.add("overview", "", "overview", c)
	for _, t := range tasks {
		r.add("t-"+t.ID.String(), "rows", "row", u.row(t, c.current, k.canOperate))
	}
	if len(tasks) == 0 {
		r.add("none", "rows", "none", map[string]any{
			"IsFiltered": q.IsFiltered(), "CanUpload": k.canUpload, "SearchedBack": pages.SearchedBack,
		})
	}
	r.add("pager", "", "pager", pages)
	return r.screen("Board")
}

// row is a video on the board.
type row struct {
	ID, Title, Source string
	Status            store.Status
	Created           time.Time
	User              string
	Priority          int16
	IsReplaced        bool
	Video             *playback.Video // nil if it is not published
	Facts             string          // about the completed video, instead of its graph; empty for another
	Graph             []graphColumn
	CanRetry          bool
}

func (u *UI) row(t store.Task, c current, canOperate bool) row {
	out := row{
		ID: t.ID.String(), Title: videoTitle(t), Source: publicSource(t.Source), Status: t.Status, Created: t.CreatedAt,
		User: printable(t.UserID), Priority: t.Priority, IsReplaced: !t.OverriddenBy.IsZero(),
		Graph: u.layout.graph(t, c), Video: c.videos[t.ID],
	}
	if t.Status == store.StatusCompleted {
		out.Facts = videoFacts(out.Video, t.CreatedAt)
	}
	out.CanRetry = canOperate && !out.IsReplaced && (t.Status == store.StatusDead || t.Status == store.StatusCancelled)
	return out
}

// withVideos adds how tasks are watched.
func (u *UI) withVideos(ctx context.Context, c current, tasks ...store.Task) (current, error) {
	if u.o.Playback == nil {
		return c, nil
	}
	var err error
	c.videos, err = u.o.Playback(ctx, tasks...)
	return c, err
}

// videoFacts says how long and large a published video is, and how long it took.
func videoFacts(v *playback.Video, submitted time.Time) string {
	if v == nil || v.Duration == 0 {
		return ""
	}
	facts := []string{formatClock(v.Duration)}
	if v.Height > 0 {
		facts = append(facts, fmt.Sprintf("%d × %d", v.Width, v.Height))
	}
	facts = append(facts, formatBytes(v.Bytes))
	if !v.PublishedAt.IsZero() {
		facts = append(facts, "ready after "+formatDuration(v.PublishedAt.Sub(submitted)))
	}
	return strings.Join(facts, " · ")
}
