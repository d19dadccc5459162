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
