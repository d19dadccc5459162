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

	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
)

// maxStoppedWorkers is the number of stopped and lost workers on a page.
const maxStoppedWorkers = 50

// worker is a worker as the page shows it.
type worker struct {
	store.Worker
	State, Word  string // a class and the name of an icon; the text
	Running      []runningAttempt
	IsHostPaused bool
	CanOperate   bool
	EndedAt      *time.Time // when it stopped or was lost
}

// runningAttempt is an attempt of a worker.
type runningAttempt struct {
	Task, Title, Stage string
	Part, Parts        int // of a divided stage
	Attempt            int
	Percent            float64 // negative if unknown
	Detail             string
}

// stageRow is a stage in the table of stages.
type stageRow struct {
	report.StageStats
	OldestReady *time.Time
	IsPaused    bool // on all hosts
	AllPaused   bool // with all other stages
	CanOperate  bool
}

func (u *UI) serveWorkers(w http.ResponseWriter, r *http.Request) {
	query, showsStopped := "", r.URL.Query().Has("stopped")
	if showsStopped {
		query = "stopped="
	}
	u.servePage(w, r, "workers", query, map[string]any{"Stopped": showsStopped})
}

func (u *UI) loadWorkers(ctx context.Context, k viewKey) (screen, error) {
	o, err := u.readOverview(ctx)
	if err != nil {
		return screen{}, err
	}
	r := u.newRenderer()
	r.add("pauses", "", "pauses", map[string]any{"Pauses": o.Pauses, "CanOperate": k.canOperate})
	for _, w := range o.Workers {
		shown := u.worker(ctx, w, o.current)
		shown.CanOperate = k.canOperate
		r.add("w-"+w.ID.String(), "workers", "worker", shown)
	}
	if len(o.Workers) == 0 {
		r.add("no-workers", "workers", "no-workers", nil)
	}
	if k.canOperate {
		if err := u.addWorkKeys(ctx, r); err != nil {
			return screen{}, err
		}
	}
	if k.values().Has("stopped") {
		if err := u.addStoppedWorkers(ctx, r); err != nil {
			return screen{}, err
		}
	}
	for _, s := range o.Stages {
		row := stageRow{
			StageStats: s, OldestReady: readySince(s.OldestReady), CanOperate: k.canOperate,
			IsPaused: o.isPaused(s.Stage, ""), AllPaused: o.isPaused("", ""),
		}
		r.add("s-"+s.Stage, "stages", "stage", row)
	}
	return r.screen("Workers")
}

func (u *UI) worker(ctx context.Context, w store.Worker, c current) worker {
	out := worker{Worker: w, IsHostPaused: c.isPaused("", w.Host)}
	switch state := w.State(); {
	case state == "silent":
		out.State, out.Word = "dead", "silent"
	case !w.Connected:
		out.State, out.Word = "failed", "disconnected"
	case state == "draining":
		out.State, out.Word = "paused", "draining"
	case out.IsHostPaused, c.isPaused("", ""):
		out.State, out.Word = "paused", "paused"
	case len(w.Running) > 0:
		out.State, out.Word = "inprogress", "busy"
	default:
		out.State, out.Word = "completed", "idle"
	}
	for _, r := range w.Running {
		out.Running = append(out.Running, runningAttempt{
			r.Task.String(), u.titleOf(ctx, r.Task), r.Stage, r.Part, r.Parts, r.Attempt, min(r.Percent, 100), progressText(r),
		})
	}
	return out
}

// addStoppedWorkers adds the last workers that stopped or were lost.
func (u *UI) addStoppedWorkers(ctx context.Context, r *fragmentRenderer) error {
	stopped, err := u.o.Store.StoppedWorkers(ctx, store.ID{}, maxStoppedWorkers)
	if err != nil {
		return err
	}
	for _, w := range stopped {
		out := worker{Worker: w, EndedAt: cmp.Or(w.LostAt, w.StoppedAt), State: "cancelled", Word: "stopped"}
		if w.LostAt != nil {
			out.State, out.Word = "failed", "lost"
		}
		r.add("w-"+w.ID.String(), "stopped", "stopped-worker", out)
	}
	if len(stopped) == 0 {
		r.add("none-stopped", "stopped", "none-stopped", nil)
	}
	return nil
}

// titleCache keeps the titles of tasks, which do not change.
type titleCache struct {
	mu     sync.Mutex
	titles map[store.ID]string
}

// maxTitles limits titleCache. Beyond it, titles are read again.
const maxTitles = 1000

// titleOf returns the title of a task, or the end of its id if it cannot be read.
func (u *UI) titleOf(ctx context.Context, id store.ID) string {
	c := &u.titles
	c.mu.Lock()
	title, ok := c.titles[id]
	c.mu.Unlock()
	if ok {
		return title
	}
	t, err := u.o.Store.Get(ctx, id)
	if err != nil {
		return shortID(id)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.titles) >= maxTitles || c.titles == nil {
		c.titles = make(map[store.ID]string)
	}
	c.titles[id] = videoTitle(t)
	return c.titles[id]
}

// workerText is a worker in a sentence: its name, and its host unless that has the same.
func workerText(name, host string) string {
	if name == "" || name == host {
		return printable(host)
	}
	return printable(name + " (" + host + ")")
}

// capabilityTexts describes the capabilities of a worker, one text for each. It omits the ids by which
// workers compare their directories.
func capabilityTexts(raw json.RawMessage) (texts []string) {
	var all map[string]any
	if json.Unmarshal(raw, &all) != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		text := ""
		amount, isSize := strings.CutSuffix(name, "_bytes")
		switch v := all[name].(type) {
		case []any: // labels, encoders
			if len(v) > 0 {
				text = strings.TrimSuffix(fmt.Sprintln(append([]any{name}, v...)...), "\n")
			}
		case bool:
			if v {
				text = name
			}
		case float64:
			text = fmt.Sprintf("%s %v", name, v)
			if isSize {
				text = amount + " " + formatBytes(int64(v))
			}
		case string:
			text = name + " " + v
		}
		if text != "" && !strings.HasSuffix(name, "_id") {
			texts = append(texts, printable(text))
		}
	}
	return texts
}
