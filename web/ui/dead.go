package ui

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
)

const (
	groupsPerPage  = 50
	videosPerGroup = 5   // on the page of all groups
	videosPerPage  = 100 // on the page of one group
)

func readDeadQuery(v url.Values) listQuery { return readListQuery(v, "stage", "group", "q", "error") }

func (q listQuery) deadFilter() report.DeadFilter {
	return report.DeadFilter{Stage: q.Get("stage"), Group: q.Get("group"), Source: q.Get("q"), Error: q.Get("error")}
}

// deadGroup is a group of dead stages with similar errors.
type deadGroup struct {
	report.DeadGroup
	Videos        []report.DeadStage
	HasMore       bool   // than Videos
	Open, Retry   string // addresses
	CanOperate    bool
	IsOwnPage     bool // on its own page
	IsPartial     bool // not all dead tasks were counted
	Text, Example string
}

func (u *UI) serveDead(w http.ResponseWriter, r *http.Request) {
	q := readDeadQuery(r.URL.Query())
	u.servePage(w, r, "dead", q.Encode(), q)
}

func (u *UI) loadDead(ctx context.Context, k viewKey) (screen, error) {
	q := readDeadQuery(k.values())
	if !k.canOperate {
		q.Del("q") // it would match parts of sources that this viewer does not see
	}
	groups, err := u.o.Store.DeadGroups(ctx, q.deadFilter(), groupsPerPage)
	if err != nil {
		return screen{}, err
	}
	limit := videosPerPage
	if !q.Has("group") {
		limit = 10 * videosPerPage
	}
	videos, next, err := u.o.Store.DeadStages(ctx, q.deadFilter(), q.after(), limit)
	if err != nil {
		return screen{}, err
	}
	r := u.newRenderer()
	r.add("dead-head", "", "dead-head", map[string]any{
		"Tasks": groups.Tasks, "Stages": groups.Stages, "Groups": groups.Groups, "IsPartial": groups.More,
		"Hidden": groups.Groups - len(groups.Largest), "CanOperate": k.canOperate && groups.Stages > 0,
		"IsFiltered": q.IsFiltered(), "Counted": report.MaxDead, "Retry": q.firstPage().link(u.o.BasePath + "/dead/retry"),
	})
	for _, g := range groups.Largest {
		group := u.deadGroup(g, q, videos)
		group.CanOperate, group.IsPartial = k.canOperate, groups.More
		r.add("g-"+g.Key, "groups", "dead-group", group)
	}
	if groups.Groups == 0 {
		r.add("no-groups", "groups", "no-groups", q)
	}
	if !q.Has("group") {
		next = store.ID{}
	}
	r.add("pager", "", "pager", q.pager(u.o.BasePath+"/dead", next))
	return r.screen("Dead tasks")
}

func (u *UI) deadGroup(g report.DeadGroup, q listQuery, videos []report.DeadStage) deadGroup {
	own := q.firstPage().with("group", g.Key)
	out := deadGroup{
		DeadGroup: g, Open: own.link(u.o.BasePath + "/dead"), Retry: own.link(u.o.BasePath + "/dead/retry"),
		IsOwnPage: q.Has("group"), Text: cmp.Or(printable(g.Pattern), "no error recorded"),
		Example: printable(strings.TrimSpace(redact.Text(g.Example, ""))),
	}
	limit := videosPerGroup
	if out.IsOwnPage {
		limit = videosPerPage
	}
	for _, v := range videos {
		if v.Group == g.Key && len(out.Videos) < limit {
			v.Title = titleOr(v.Title, v.Source)
			out.Videos = append(out.Videos, v)
		}
	}
	out.HasMore = g.Count > len(out.Videos)
	return out
}
