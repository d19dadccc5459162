package engine

import (
	"testing"

	"github.com/cuelight/cuelight/store"
)

func TestFormFor_ChoosesAFormOfTheReportedStages(t *testing.T) {
	t.Parallel()
	e := New(nil, store.Video())
	ingest, transcode, metadata, assemble, publish := 1, 2, 4, 8, 16
	for name, c := range map[string]struct {
		stages []int32
		tasks  int
		ranked bool

		reported, next, read int
		single, mayEnd       bool
	}{
		"one task":             {[]int32{0}, 1, false, ingest, transcode | metadata, ingest | transcode | metadata, true, false},
		"siblings of one":      {[]int32{2, 1}, 1, false, transcode | metadata, assemble, transcode | metadata | assemble, true, false},
		"several tasks":        {[]int32{3, 3}, 2, false, assemble, publish, assemble | publish, false, false},
		"the last stage":       {[]int32{4}, 1, false, publish, 0, publish, true, true},
		"different stages":     {[]int32{0, 4}, 2, false, 31, 30, 31, false, true},
		"competing for slots":  {[]int32{0}, 1, true, ingest, transcode | metadata, ingest | transcode | metadata, false, false},
		"different, competing": {[]int32{0, 4}, 2, true, 31, 30, 31, false, true},
	} {
		form := e.forms[e.formFor(&completion{ids: make([]store.ID, c.tasks), stages: c.stages}, c.ranked)]
		if form.Reported != c.reported || form.Next != c.next || form.Read != c.read || form.Single != c.single ||
			form.Ranked != c.ranked || form.MayEnd != c.mayEnd {
			t.Errorf("%s: the form is %+v", name, form)
		}
	}
}

func TestBySet_MakesACompletionPerSetOfManyReports(t *testing.T) {
	t.Parallel()
	e := New(nil, store.Video())
	for name, c := range map[string]struct {
		reports map[int]int // by stage
		want    int
	}{
		"few":         {map[int]int{0: 10, 3: 10}, 1},
		"many":        {map[int]int{0: 40, 3: 40}, 2},
		"one set":     {map[int]int{1: 80, 2: 80}, 1},
		"all of them": {map[int]int{0: 30, 1: 40, 2: 40, 3: 40, 4: 50}, 4},
	} {
		all := newCompletion(len(e.stages), 200)
		for stage, n := range c.reports {
			for i := range n {
				all.add(&Report{Task: store.ID{15: byte(i)}, Stage: stage, Token: store.ID{byte(stage + 1), 15: byte(i)}})
			}
		}
		sets := all.bySet(e.group)
		if len(sets) != c.want {
			t.Errorf("%s: %d completions, want %d", name, len(sets), c.want)
		}
		rows := 0
		for _, one := range sets {
			rows += len(one.stages)
			for i, stage := range one.stages {
				if e.group[stage] != e.group[one.stages[0]] && c.want > 1 || one.tokens[stage][one.row[one.tasks[i]]] != one.claims[i] {
					t.Errorf("%s: a report of stage %d is in the wrong place", name, stage)
				}
			}
		}
		if rows != len(all.stages) {
			t.Errorf("%s: %d of %d reports are left", name, rows, len(all.stages))
		}
	}
}
