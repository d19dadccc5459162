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

func TestCompletions_AreOnePerSetOfStagesWithManyReports(t *testing.T) {
	t.Parallel()
	e := New(nil, store.Video())
	for name, c := range map[string]struct {
		reports map[int]int // by stage
		want    int
		several bool // of a set
	}{
		"few":         {map[int]int{0: 10, 3: 10}, 1, false},
		"many":        {map[int]int{0: 40, 3: 40}, 2, false},
		"one set":     {map[int]int{1: 80, 2: 80}, 1, false},
		"all of them": {map[int]int{0: 30, 1: 40, 2: 40, 3: 40, 4: 50}, 4, false},
		"very many":   {map[int]int{0: maxBatch, 3: maxBatch}, 2, false},
		"too many":    {map[int]int{0: maxBatch + 1, 3: 10}, 3, true},
	} {
		x := e.newExchange(ExchangeRequest{})
		for stage, n := range c.reports {
			for i := range n {
				x.request.Reports = append(x.request.Reports, Report{Task: store.ID{14: byte(i >> 8), 15: byte(i)}, Stage: stage,
					Token: store.ID{byte(stage + 1), 14: byte(i >> 8), 15: byte(i)}})
			}
		}
		var all completions
		for i := range x.request.Reports {
			r := &x.request.Reports[i]
			all.add(r, x.setOf(r), len(x.stages), x.reportsPerSet()[x.setOf(r)])
		}
		if all.isOnePerSet() == c.several {
			t.Errorf("%s: one per set: %v", name, !c.several)
		}
		if !c.several {
			all = all.merged(len(x.stages))
		}
		if len(all) != c.want {
			t.Errorf("%s: %d completions, want %d", name, len(all), c.want)
		}
		reports := 0
		for _, one := range all {
			reports += len(one.stages)
			for i, stage := range one.stages {
				if c.want > 1 && e.group[stage] != one.set || one.tokens[stage][one.row[one.tasks[i]]] != one.claims[i] {
					t.Errorf("%s: a report of stage %d is in the wrong place", name, stage)
				}
			}
		}
		if reports != len(x.request.Reports) {
			t.Errorf("%s: %d of %d reports are left", name, reports, len(x.request.Reports))
		}
	}
}
