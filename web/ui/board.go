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

const boardRows = 50

// strip is what a board says of all tasks at once.
type overview struct {
	store.Stats
	WakeLatency store.Percentiles
	OldestSince *time.Time // since when the stage that keeps a task waiting the longest has done so
	OldestStage string
	Workers     int
	Pauses      []store.Pause
}

// wakeUpOf is how far the wake-up in the strip looks back.
const wakeLatencyWindow = 15 * time.Minute

func (u *UI) readOverview(ctx context.Context) (overview, error) {
	return u.overview.get(ctx, func(ctx context.Context) (s overview, err error) {
		if s.Stats, err = u.o.Store.Stats(ctx); err != nil {
			return s, err
		}
		if u.o.WakeLatency != nil {
			s.WakeLatency = u.o.WakeLatency(wakeLatencyWindow)
		}
		if o := s.Oldest(); o.OldestReady > 0 {
			since := time.Now().Add(-o.OldestReady).Round(2 * time.Second) // so that it does not waver
			s.OldestSince, s.OldestStage = &since, o.Stage
		}
		return s, nil
	})
}

func (u *UI) readWorkers(ctx context.Context) ([]store.Worker, error) {
	return u.workers.get(ctx, func(ctx context.Context) ([]store.Worker, error) { return u.o.Store.Workers(ctx, false) })
}

func (u *UI) readPauses(ctx context.Context) ([]store.Pause, error) {
	return u.pauses.get(ctx, u.o.Store.Pauses)
}

// pausedStage says whether a stage is paused wherever it could run.
func isStagePaused(pauses []store.Pause) func(stage string) bool {
	return func(stage string) bool {
		return slices.ContainsFunc(pauses, func(p store.Pause) bool { return p.Host == "" && (p.Stage == "" || p.Stage == stage) })
	}
}

// filters are the conditions of a board, as they stand in its address.
type boardFilters struct {
	Only, Text, User, Stage, Status, Error string
	Oldest                                 bool
	After                                  store.ID
}

// choices are those of tasks that have a link, with what they are called.
var stateTabs = []struct{ Only, Word string }{
	{"", "All"}, {"running", "Running"}, {"waiting", "Ready"}, {"scheduled", "Scheduled"}, {"retrying", "Retrying"}, {"dead", "Dead"}, {"completed", "Completed"}, {"cancelled", "Cancelled"},
}

// tab is a link to one of the choices, with all other conditions as they are.
type boardTab struct {
	Word, Link string
	Here       bool
}

func (f boardFilters) tabs(base string) (out []boardTab) {
	for _, c := range stateTabs {
		to := f.firstPage()
		to.Only = c.Only
		out = append(out, boardTab{c.Word, to.link(base), c.Only == f.Only})
	}
	return out
}

func readFilters(v url.Values) boardFilters {
	f := boardFilters{
		Only: v.Get("only"), Text: cleanText(v.Get("q")), User: cleanText(v.Get("user")),
		Stage: cleanText(v.Get("stage")), Status: cleanText(v.Get("status")), Error: cleanText(v.Get("error")), Oldest: v.Get("order") == "oldest",
	}
	if !slices.ContainsFunc(stateTabs, func(c struct{ Only, Word string }) bool { return c.Only == f.Only }) {
		f.Only = "" // what is no choice is all
	}
	switch {
	case f.Stage == "":
		f.Status = ""
	case !slices.Contains(stageStatuses, store.Status(f.Status)):
		f.Status = string(store.StatusPending) // which the form shows first
	}
	f.After, _ = store.ParseID(v.Get("after")) // what is no id is the first page
	return f
}

// clean makes text that PostgreSQL can be asked for.
func cleanText(s string) string {
	return strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\x00", ""))
}

// values are the conditions as an address has them, without what is not asked for.
func (f boardFilters) values() url.Values {
	v := url.Values{}
	for name, value := range map[string]string{
		"only": f.Only, "q": f.Text, "user": f.User, "stage": f.Stage, "status": f.Status, "error": f.Error,
	} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if f.Oldest {
		v.Set("order", "oldest")
	}
	if !f.After.IsZero() {
		v.Set("after", f.After.String())
	}
	return v
}

func (f boardFilters) query() store.BoardQuery {
	q := store.BoardQuery{Oldest: f.Oldest, Filter: store.Filter{
		Source: f.Text, UserID: f.User, Stage: f.Stage, Error: f.Error, After: f.After, Limit: boardRows,
	}}
	if f.Stage != "" {
		q.StageStatus = store.Status(f.Status)
	}
	switch f.Only {
	case "completed", "cancelled":
		q.Status = store.Status(f.Only)
	default:
		q.State = store.StateFilter(f.Only)
	}
	return q
}

// link is the address of a board.
func (f boardFilters) link(base string) string {
	if q := f.values().Encode(); q != "" {
		return base + "/?" + q
	}
	return base + "/"
}

// more reports whether there are conditions that only the folded form shows.
func (f boardFilters) hasFoldedFilters() bool { return f.User != "" || f.Stage != "" || f.Error != "" }

// Any reports whether there is a condition at all.
func (f boardFilters) Any() bool {
	return f.Only != "" || f.Text != "" || f.hasFoldedFilters()
}

// row is a video on the board.
type row struct {
	ID, Title, Source string
	Status            store.Status
	Created           time.Time
	User              string
	Priority          int16
	Replaced          bool
	Poster            string
	Graph             []graphColumn
	CanRetry          bool
}

func (u *UI) serveBoard(w http.ResponseWriter, r *http.Request) {
	f := readFilters(r.URL.Query())
	if id, ok := u.findByID(r.Context(), f.Text); ok {
		http.Redirect(w, r, u.o.Base+"/videos/"+id.String(), http.StatusSeeOther)
		return
	}
	u.servePage(w, r, viewKey{page: "board", query: f.values().Encode()}, f)
}

// idEnd is what pages show of an id, or more of it.
var idSuffix = regexp.MustCompile(`^…?([0-9a-f-]{8,36})$`)

// named is the task that somebody names by its id, or by the end of it.
func (u *UI) findByID(ctx context.Context, text string) (id store.ID, ok bool) {
	m := idSuffix.FindStringSubmatch(text)
	if m == nil {
		return id, false
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	id, err := u.o.Store.FindNewest(ctx, m[1])
	return id, err == nil // what is none is searched for
}

func (u *UI) loadBoard(ctx context.Context, k viewKey) (screen, error) {
	f := readFilters(k.values())
	tasks, after, err := u.findTasks(ctx, f.query(), k.canOperate)
	if err != nil {
		return screen{}, err
	}
	s, err := u.readOverview(ctx)
	if err != nil {
		return screen{}, err
	}
	workers, err := u.readWorkers(ctx)
	if err != nil {
		return screen{}, err
	}
	if s.Pauses, err = u.readPauses(ctx); err != nil {
		return screen{}, err
	}
	s.Workers = len(workers)
	next, searched := "", (*time.Time)(nil)
	if !after.IsZero() {
		further := f
		further.After = after
		next = further.link(u.o.Base)
		if at, ok := after.Time(); ok && len(tasks) < boardRows {
			searched = &at
		}
	}
	d := u.newRenderer()
	d.add("strip", "", "strip", s)
	running := runningByToken(workers)
	for _, t := range tasks {
		d.add("t-"+t.ID.String(), "rows", "row", u.row(t, running, s.Pauses, k.canOperate))
	}
	if len(tasks) == 0 {
		d.add("none", "rows", "none", map[string]any{"Any": f.Any(), "Drop": k.canUpload, "Searched": searched})
	}
	d.add("pager", "", "pager", map[string]any{"Next": next, "First": f.firstPage().link(u.o.Base), "Paged": !f.After.IsZero(), "Searched": searched})
	return d.screen("Board")
}

// searchFor is for how long a board goes on looking for tasks where it has to look at
// each.
const searchTime = 2 * time.Second

// find reads a board, and where its next page goes on, if there may be one. A caller
// who may not do everything is not shown all of a source, and must not find out the rest
// by asking for parts of it.
func (u *UI) findTasks(ctx context.Context, q store.BoardQuery, all bool) (found []store.Task, next store.ID, err error) {
	limit := q.Limit
	q.Limit, q.Shown = limit+1, !all // one more, to know whether there is a next page
	for began := time.Now(); ; {
		page, err := u.o.Store.Page(ctx, q)
		if err != nil {
			return nil, next, err
		}
		for _, t := range page.Tasks {
			if !all && !strings.Contains(publicSource(t.Source), q.Source) && !strings.Contains(t.Title(), q.Source) {
				continue
			}
			if len(found) == limit {
				return found, found[limit-1].ID, nil
			}
			found = append(found, t)
		}
		if page.Next.IsZero() || time.Since(began) >= searchTime {
			return found, page.Next, nil
		}
		q.After = page.Next
	}
}

func (f boardFilters) firstPage() boardFilters {
	f.After = store.ID{}
	return f
}

func (u *UI) row(t store.Task, running map[store.ID]store.Running, pauses []store.Pause, acts bool) row {
	out := row{
		ID: t.ID.String(), Title: videoTitle(t), Source: publicSource(t.Source), Status: t.Status, Created: t.CreatedAt,
		User: printable(t.UserID), Priority: t.Priority, Replaced: !t.OverriddenBy.IsZero(),
		Graph: u.layout.drawStages(t, running, isStagePaused(pauses)),
	}
	out.CanRetry = acts && !out.Replaced && (t.Status == store.StatusDead || t.Status == store.StatusCancelled)
	if u.o.Poster != nil {
		if address, ok := u.o.Poster(t); ok {
			out.Poster = address
		}
	}
	return out
}
