package ui

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/store"
)

const (
	boardRows  = 50
	searchTime = 2 * time.Second // of a board that must read each task
)

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
	b := store.ListQuery{Oldest: q.Get("order") == "oldest", Filter: store.Filter{
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
		http.Redirect(w, r, u.o.Base+"/videos/"+id.String(), http.StatusSeeOther)
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
	tasks, next, err := u.findTasks(ctx, q.boardQuery(), k.canOperate)
	if err != nil {
		return screen{}, err
	}
	c, err := u.readOverview(ctx)
	if err != nil {
		return screen{}, err
	}
	pages := q.pager(u.o.Base+"/", next)
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

// findTasks reads the tasks of a board, and after which task its next page starts, if
// any. A viewer who may not operate sees sources without their secrets; for them a
// search only matches what they see.
func (u *UI) findTasks(ctx context.Context, q store.ListQuery, canOperate bool) (
	found []store.Task, next store.ID, err error) {
	limit := q.Limit
	q.Limit, q.Shown = limit+1, !canOperate // one more, to know whether there is a next page
	for started := time.Now(); ; {
		page, err := u.o.Store.Page(ctx, q)
		if err != nil {
			return nil, next, err
		}
		for _, t := range page.Tasks {
			if !canOperate && !strings.Contains(publicSource(t.Source)+"\n"+t.Title(), q.Source) {
				continue
			}
			if len(found) == limit {
				return found, found[limit-1].ID, nil
			}
			found = append(found, t)
		}
		if page.Next.IsZero() || time.Since(started) >= searchTime {
			return found, page.Next, nil
		}
		q.After = page.Next
	}
}

// row is a video on the board.
type row struct {
	ID, Title, Source string
	Status            store.Status
	Created           time.Time
	User              string
	Priority          int16
	IsReplaced        bool
	Poster            string
	Graph             []graphColumn
	CanRetry          bool
}

func (u *UI) row(t store.Task, c current, canOperate bool) row {
	out := row{
		ID: t.ID.String(), Title: videoTitle(t), Source: publicSource(t.Source), Status: t.Status, Created: t.CreatedAt,
		User: printable(t.UserID), Priority: t.Priority, IsReplaced: !t.OverriddenBy.IsZero(),
		Graph: u.layout.graph(t, c),
	}
	out.CanRetry = canOperate && !out.IsReplaced && (t.Status == store.StatusDead || t.Status == store.StatusCancelled)
	if u.o.Poster != nil {
		if address, ok := u.o.Poster(t); ok {
			out.Poster = address
		}
	}
	return out
}
