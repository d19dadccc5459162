package ui

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/store"
)

const (
	videosPerGroup = 5   // before one looks at the group
	videosPerPage  = 100 // of one group
	groupsPerPage  = 50
)

// deadFilters are the conditions of the dead letters, as they stand in the address.
type deadFilters struct {
	Stage, Group, Text, Error string
	After                     store.ID
}

func readDeadFilters(v url.Values) deadFilters {
	f := deadFilters{Stage: v.Get("stage"), Group: cleanText(v.Get("group")), Text: cleanText(v.Get("q")), Error: cleanText(v.Get("error"))}
	f.After, _ = store.ParseID(v.Get("after")) // what is no id is the first page
	return f
}

func (f deadFilters) values() url.Values {
	v := url.Values{}
	for name, value := range map[string]string{"stage": f.Stage, "group": f.Group, "q": f.Text, "error": f.Error} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if !f.After.IsZero() {
		v.Set("after", f.After.String())
	}
	return v
}

func (f deadFilters) filter() store.DeadFilter {
	return store.DeadFilter{Stage: f.Stage, Group: f.Group, Source: f.Text, Error: f.Error}
}

// Any reports whether there is a condition.
func (f deadFilters) Any() bool {
	return f.Stage != "" || f.Group != "" || f.Text != "" || f.Error != ""
}

// deadGroup is a group of dead letters, as it is shown.
type deadGroup struct {
	store.DeadGroup
	Letters          []deadVideo
	More             int
	Open, Retry      string // addresses
	Acts, Alone      bool
	Beyond           bool // there may be more of it than was looked at
	Text, Example    string
	OldestAt, DiedAt *time.Time
}

type deadVideo struct {
	Task, Title string
	DiedAt      *time.Time
	Attempts    int
	Acts        bool
}

func (u *UI) serveDead(w http.ResponseWriter, r *http.Request) {
	f := readDeadFilters(r.URL.Query())
	u.servePage(w, r, viewKey{page: "dead", query: f.values().Encode()}, f)
}

func (u *UI) loadDead(ctx context.Context, k viewKey) (screen, error) {
	f := readDeadFilters(k.values())
	if !k.canOperate {
		f.Text = "" // groups are counted by all of a source, of which only part is shown
	}
	groups, err := u.o.Store.DeadGroups(ctx, f.filter(), groupsPerPage)
	if err != nil {
		return screen{}, err
	}
	limit := videosPerPage
	if f.Group == "" {
		limit = 10 * videosPerPage
	}
	letters, more, err := u.o.Store.DeadLetters(ctx, f.filter(), f.After, limit)
	if err != nil {
		return screen{}, err
	}
	d := u.newRenderer()
	d.add("dead-head", "", "deadhead", map[string]any{
		"Videos": groups.Tasks, "Letters": groups.Letters, "Groups": groups.Groups, "Rest": groups.Groups - len(groups.Largest), "Acts": k.canOperate && groups.Letters > 0, "Any": f.Any(), "More": groups.More, "Looked": store.DeadAtMost, "Retry": u.deadLink("/dead/retry", f.firstPage()),
	})
	next := ""
	if f.Group != "" && !more.IsZero() {
		after := f
		after.After = more
		next = u.deadLink("/dead", after)
	}
	for _, g := range groups.Largest {
		out := u.deadGroup(g, f, k.canOperate)
		out.Beyond = groups.More
		most := videosPerGroup
		if out.Alone {
			most = videosPerPage
		}
		for _, l := range letters {
			if l.Group == g.Key && len(out.Letters) < most {
				out.Letters = append(out.Letters, u.deadVideo(l, k.canOperate))
			}
		}
		out.More = max(g.Count-len(out.Letters), 0)
		d.add("g-"+g.Key, "groups", "deadgroup", out)
	}
	if groups.Groups == 0 {
		d.add("no-groups", "groups", "nogroups", f)
	}
	d.add("pager", "", "pager", map[string]any{"Next": next, "First": u.deadLink("/dead", f.firstPage()), "Paged": !f.After.IsZero()})
	return d.screen("Dead tasks")
}

func (f deadFilters) firstPage() deadFilters {
	f.After = store.ID{}
	return f
}

func (u *UI) deadLink(path string, f deadFilters) string {
	if q := f.values().Encode(); q != "" {
		path += "?" + q
	}
	return u.o.Base + path
}

func (u *UI) deadGroup(g store.DeadGroup, f deadFilters, acts bool) deadGroup {
	one := f.firstPage()
	one.Group = g.Key
	text := printable(g.Pattern)
	if text == "" {
		text = "no error recorded"
	}
	example := printable(strings.TrimSpace(redact.Text(g.Example, "")))
	return deadGroup{
		DeadGroup: g, Open: u.deadLink("/dead", one), Retry: u.deadLink("/dead/retry", one), Acts: acts, Alone: f.Group != "",
		Text: text, Example: example, OldestAt: g.Oldest, DiedAt: g.Newest,
	}
}

func (u *UI) deadVideo(l store.DeadStage, acts bool) deadVideo {
	return deadVideo{
		Task: l.Task.String(), Title: cmp.Or(printable(l.Title), sourceName(l.Source)), DiedAt: l.DiedAt, Attempts: l.Attempts, Acts: acts,
	}
}

// retryWhat is which dead letters are to be tried again: those that are ticked, or
// all that match.
func retrySelection(v url.Values) (f store.DeadFilter, fields []field, err error) {
	if ids := v["task"]; len(ids) > 0 && !v.Has("all") {
		for _, text := range ids {
			id, err := store.ParseID(text)
			if err != nil {
				return f, nil, fmt.Errorf("%w: %w", errIncomplete, err)
			}
			f.Tasks = append(f.Tasks, id)
			fields = append(fields, field{"task", id.String()})
		}
		return f, fields, nil
	}
	if v.Has("selected") {
		return f, nil, nil
	}
	filters := readDeadFilters(v).firstPage()
	for name, values := range filters.values() {
		fields = append(fields, field{name, values[0]})
	}
	return filters.filter(), append(fields, field{"all", "1"}), nil
}

func confirmRetryDead(u *UI, r *http.Request) (confirmation, error) {
	v := r.URL.Query()
	f, fields, err := retrySelection(v)
	if err != nil {
		return confirmation{}, err
	}
	q := confirmation{Title: "Retry", To: u.o.Base + "/dead/retry", Fields: fields}
	if f.Tasks == nil && v.Has("selected") {
		q.Nothing, q.Text = true, "No videos are selected. Select some first, or retry a whole group."
		return q, nil
	}
	n, more, err := u.o.Store.CountDead(r.Context(), f)
	if err != nil {
		return q, err
	}
	if more {
		q.Button = "Retry all"
		q.Text = "You are about to retry " + describeSelection(f) + ": " + count(n, "video") + " of the newest " +
			formatInt(store.DeadAtMost) + " dead tasks, and all matching older ones. Their attempts start from one."
		q.Command = retryDeadCommand(f)
		return q, nil
	}
	if n == 0 {
		q.Nothing, q.Text = true, "None of these videos is dead now."
		return q, nil
	}
	q.Button = "Retry " + count(n, "video")
	q.Text = "You are about to retry exactly " + count(n, "video") + ": " + describeSelection(f) + ". Their attempts start from one."
	q.Command = retryDeadCommand(f)
	return q, nil
}

// which names what is chosen.
func describeSelection(f store.DeadFilter) string {
	if f.Tasks != nil {
		return "the selected ones"
	}
	var words []string
	if f.Stage != "" {
		words = append(words, "in stage "+printable(f.Stage))
	}
	if f.Group != "" {
		words = append(words, "of this group")
	}
	if f.Source != "" {
		words = append(words, "with “"+printable(f.Source)+"” in the source")
	}
	if f.Error != "" {
		words = append(words, "with “"+printable(f.Error)+"” in the error")
	}
	if words == nil {
		return "all dead videos, on all pages"
	}
	return "all dead videos " + strings.Join(words, ", ") + ", on all pages"
}

// deadCommand does the same in a shell, where that can say it.
func retryDeadCommand(f store.DeadFilter) string {
	args := []string{"retry"}
	switch {
	case f.Group != "", f.Error != "": // there the error is that of any attempt
		return ""
	case f.Tasks != nil:
		if len(f.Tasks) > 5 {
			return ""
		}
		for _, id := range f.Tasks {
			args = append(args, id.String())
		}
		return command(args...)
	}
	args = append(args, "--all")
	if f.Stage != "" {
		args = append(args, "--stage", f.Stage+"=dead")
	}
	if f.Source != "" {
		args = append(args, "--source", f.Source)
	}
	return command(args...)
}

func doRetryDead(u *UI, ctx context.Context, r *http.Request) (string, error) {
	f, _, err := retrySelection(r.PostForm)
	if err != nil {
		return "", err
	}
	if f.Tasks == nil && !r.PostForm.Has("all") {
		return "", fmt.Errorf("%w: no videos are selected", errIncomplete)
	}
	done, err := u.o.Actions.RetryDead(ctx, f, store.RetryAllOptions{Until: time.Now().Add(retryTime)})
	if err != nil {
		return "", err
	}
	said := "Retrying " + count(done.Retried, "video") + "."
	if done.Remaining > 0 {
		said += " Time ran out for " + count(done.Remaining, "more video") + ": retry again for the rest."
	}
	return said, nil
}

// retryFor is for how long somebody waits for the answer to a retry of many videos. The
// rest is for the next time.
const retryTime = 15 * time.Second
