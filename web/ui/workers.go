package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cuelight/cuelight/store"
)

// worker is a process, as it is shown.
type worker struct {
	ID, Host, Version, Can string
	PID                    int
	State, Word            string // a class and the name of an icon; in words
	StartedAt, BeatAt      time.Time
	Runs                   []workerRun
	DrainAt                *time.Time
	HostPaused             bool
	Acts                   bool
	GoneAt                 *time.Time // since when it is not there any more
}

// goneShown is how many workers that are gone a page has.
const maxGoneWorkers = 50

func (u *UI) serveWorkers(w http.ResponseWriter, r *http.Request) {
	k := viewKey{page: "workers"}
	gone := r.URL.Query().Has("gone")
	if gone {
		k.query = "gone="
	}
	u.servePage(w, r, k, map[string]any{"Gone": gone})
}

// run is what a worker works on.
type workerRun struct {
	Task, Title, Stage string
	Attempt            int
	Percent            float64
	Detail             string
}

// stage is a stage of the pipeline, on the page of the workers.
type stageRow struct {
	store.StageStats
	Since     *time.Time // since when the oldest of what is ready has been so
	Paused    *store.Pause
	AllPaused bool
	Acts      bool
}

func (u *UI) loadWorkers(ctx context.Context, k viewKey) (screen, error) {
	workers, err := u.readWorkers(ctx)
	if err != nil {
		return screen{}, err
	}
	pauses, err := u.readPauses(ctx)
	if err != nil {
		return screen{}, err
	}
	s, err := u.readOverview(ctx)
	if err != nil {
		return screen{}, err
	}
	d := u.newRenderer()
	d.add("pauses", "", "pauses", map[string]any{"Pauses": pauses, "Acts": k.canOperate})
	for _, w := range workers {
		d.add("w-"+w.ID.String(), "workers", "worker", u.worker(ctx, w, pauses, k.canOperate))
	}
	if len(workers) == 0 {
		d.add("no-workers", "workers", "noworkers", nil)
	}
	if k.values().Has("gone") {
		if err := u.addGoneWorkers(ctx, d); err != nil {
			return screen{}, err
		}
	}
	all := slices.ContainsFunc(pauses, func(p store.Pause) bool { return p.Stage == "" && p.Host == "" })
	for _, st := range s.Stages {
		row := stageRow{StageStats: st, Acts: k.canOperate, AllPaused: all}
		if st.OldestReady > 0 {
			since := time.Now().Add(-st.OldestReady).Round(2 * time.Second)
			row.Since = &since
		}
		for _, p := range pauses {
			if p.Stage == st.Stage && p.Host == "" {
				row.Paused = &p
			}
		}
		row.OldestReady = 0 // it is told by Since, which does not waver
		d.add("s-"+st.Stage, "stages", "stage", row)
	}
	return d.screen("Workers")
}

func (u *UI) worker(ctx context.Context, w store.Worker, pauses []store.Pause, acts bool) worker {
	out := worker{
		ID: w.ID.String(), Host: printable(w.Host), Version: printable(w.Version), PID: w.PID, Can: capabilitiesText(w.Capabilities),
		StartedAt: w.StartedAt, BeatAt: w.HeartbeatAt, Acts: acts, DrainAt: w.DrainAt,
	}
	paused := func(host string) bool {
		return slices.ContainsFunc(pauses, func(p store.Pause) bool { return p.Stage == "" && p.Host == host })
	}
	out.HostPaused = paused(w.Host)
	switch {
	case w.HeartbeatAge > w.Lease:
		out.State, out.Word = "dead", "silent"
	case !w.Connected:
		out.State, out.Word = "failed", "disconnected"
	case out.DrainAt != nil:
		out.State, out.Word = "paused", "draining"
	case out.HostPaused, paused(""):
		out.State, out.Word = "paused", "paused"
	case len(w.Running) > 0:
		out.State, out.Word = "inprogress", "working"
	default:
		out.State, out.Word = "completed", "idle"
	}
	for _, r := range w.Running {
		out.Runs = append(out.Runs, workerRun{r.Task.String(), u.titleOf(ctx, r.Task), r.Stage, r.Attempt, min(r.Percent, 100), progressText(r)})
	}
	return out
}

// goneWorkers are the last ones that are not there any more.
func (u *UI) addGoneWorkers(ctx context.Context, d *fragmentRenderer) error {
	gone, err := u.o.Store.StoppedWorkers(ctx, store.ID{}, maxGoneWorkers)
	if err != nil {
		return err
	}
	for _, w := range gone {
		out := worker{
			ID: w.ID.String(), Host: printable(w.Host), Version: printable(w.Version), PID: w.PID, StartedAt: w.StartedAt,
			GoneAt: cmp.Or(w.LostAt, w.StoppedAt), State: "cancelled", Word: "stopped",
		}
		if w.LostAt != nil {
			out.State, out.Word = "failed", "lost"
		}
		d.add("w-"+out.ID, "gone", "goneworker", out)
	}
	if len(gone) == 0 {
		d.add("none-gone", "gone", "nonegone", nil)
	}
	return nil
}

// titles are what tasks are called, which does not change.
type titleCache struct {
	mu    sync.Mutex
	known map[store.ID]string
}

// titlesKept is how many titles are kept; beyond that they are read anew.
const maxTitles = 1000

// titleOf is what a task is called; where it cannot be read, the end of its id.
func (u *UI) titleOf(ctx context.Context, id store.ID) string {
	u.titles.mu.Lock()
	text, ok := u.titles.known[id]
	u.titles.mu.Unlock()
	if ok {
		return text
	}
	t, err := u.o.Store.Get(ctx, id)
	if err != nil {
		return "…" + linkTo(id).Short
	}
	u.titles.mu.Lock()
	defer u.titles.mu.Unlock()
	if len(u.titles.known) >= maxTitles || u.titles.known == nil {
		u.titles.known = make(map[store.ID]string)
	}
	text = videoTitle(t)
	u.titles.known[id] = text
	return text
}

// capabilities is what a worker says that it can do, in a line. Names that nobody
// can read, of the directories it works in, are for others like it.
func capabilitiesText(raw json.RawMessage) string {
	var all map[string]any
	if json.Unmarshal(raw, &all) != nil {
		return ""
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if strings.HasSuffix(name, "_id") {
			continue
		}
		switch v := all[name].(type) {
		case bool:
			if v {
				words = append(words, name)
			}
		case string, float64:
			words = append(words, fmt.Sprintf("%s %v", name, v))
		}
	}
	return printable(strings.Join(words, ", "))
}
