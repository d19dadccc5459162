package ui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
)

// layoutText formats a layout: a line per column, with the wires to the next one.
func layoutText(t *testing.T, nodes ...store.Node) string {
	t.Helper()
	g, err := store.NewGraph("test", nodes...)
	if err != nil {
		t.Fatal(err)
	}
	l := newPipelineLayout(g)
	var b strings.Builder
	for _, c := range l.columns {
		for _, lane := range c.lanes {
			if lane.stage < 0 {
				b.WriteString("| ")
				continue
			}
			b.WriteString(l.stages[lane.stage] + " ")
		}
		for _, w := range c.wires {
			fmt.Fprintf(&b, "(%s %.0f-%.0f) ", l.stages[w.stage], w.from, w.to)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestPipelineLayout_PlacesStagesInColumns(t *testing.T) {
	t.Parallel()
	got := layoutText(t,
		store.Node{Name: "ingest"},
		store.Node{Name: "transcode", Needs: []string{"ingest"}},
		store.Node{Name: "metadata", Needs: []string{"ingest"}},
		store.Node{Name: "assemble", Needs: []string{"transcode", "metadata"}},
		store.Node{Name: "publish", Needs: []string{"assemble"}})
	want := "ingest (ingest 50-25) (ingest 50-75) \n" +
		"transcode metadata (transcode 25-50) (metadata 75-50) \n" +
		"assemble (assemble 50-50) \npublish \n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestPipelineLayout_LeadsWiresThroughColumns(t *testing.T) {
	t.Parallel()
	got := layoutText(t,
		store.Node{Name: "a"},
		store.Node{Name: "b", Needs: []string{"a"}},
		store.Node{Name: "c", Needs: []string{"b"}},
		store.Node{Name: "d", Needs: []string{"c", "a"}},
		store.Node{Name: "alone"})
	want := "a alone (a 25-25) (a 25-75) \nb | (b 25-25) (a 75-75) \nc | (c 25-50) (a 75-50) \nd \n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestGantt_OmitsTimeWithoutActivity(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	history := []store.Attempt{
		{Stage: "ingest", Attempt: 1, Outcome: "completed", StartedAt: at(2), FinishedAt: at(4)},
		{Stage: "transcode", Attempt: 1, Outcome: "failed", StartedAt: at(5), FinishedAt: at(10)},
		{Stage: "metadata", Attempt: 1, Outcome: "completed", StartedAt: at(4), FinishedAt: at(6)},
		{Stage: "ingest", Attempt: 1, Outcome: "completed", StartedAt: at(90000), FinishedAt: at(90004)},
	}
	task := store.Task{CreatedAt: start}
	for i, s := range []store.Status{
		store.StatusCompleted, store.StatusDead, store.StatusCompleted, store.StatusPending, store.StatusPending,
	} {
		task.Stages = append(task.Stages, store.StageState{Name: store.Video().Stages()[i], Status: s})
	}
	g := newPipelineLayout(store.Video()).drawGantt(task, history, current{}, at(100000))
	var b strings.Builder
	for _, lane := range g.Lanes {
		for _, bar := range lane.Bars {
			fmt.Fprintf(&b, "%s %s %s+%s\n", lane.Stage, bar.Kind, bar.X, bar.Width)
		}
	}
	// The chart shows 14 s in 96 percent: 10 s before and 4 s after the gap.
	want := "ingest wait 0.00%+13.71%\ningest completed 13.71%+13.71%\ningest completed 72.57%+27.43%\n" +
		"transcode wait 27.43%+6.86%\ntranscode failed 34.29%+34.29%\nmetadata completed 27.43%+13.71%\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	if len(g.Gaps) != 1 || g.Gaps[0].Text != "24 h 59 m without activity" {
		t.Errorf("gaps are %+v", g.Gaps)
	}
	if len(g.Ticks) == 0 || g.Ticks[0].Text != "submitted" {
		t.Errorf("ticks are %+v", g.Ticks)
	}
}

func TestGantt_DrawsARunningAttemptUntilNow(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	locked := start.Add(time.Second)
	task := store.Task{CreatedAt: start}
	for i, name := range store.Video().Stages() {
		s := store.StageState{Name: name, Status: store.StatusPending}
		if i == 0 {
			s.Status, s.LockedAt, s.Attempts = store.StatusInProgress, &locked, 1
		}
		task.Stages = append(task.Stages, s)
	}
	g := newPipelineLayout(store.Video()).drawGantt(task, nil, current{}, start.Add(4*time.Second))
	if bars := g.Lanes[0].Bars; len(bars) != 2 || bars[0].Kind != "wait" || bars[0].Width != "25.00%" ||
		bars[1].Kind != "running" || bars[1].Width != "75.00%" {
		t.Errorf("bars are %+v", bars)
	}
}
