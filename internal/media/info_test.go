package media

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInfo_SurvivesJSON(t *testing.T) {
	t.Parallel()
	before := &Info{
		Container: "mov", Size: 1, Duration: 2, Cover: -1,
		Video: &Video{Codec: "h264", Width: 2, Height: 4, HDR: "pq", Rotation: 90},
		Audio: []Audio{{Index: 1, Language: "eng"}}, Subtitles: []Subtitle{}, Warnings: []string{"w"},
	}
	b, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	after := &Info{}
	if err := json.Unmarshal(b, after); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after, cmp.AllowUnexported(Video{})); diff != "" {
		t.Error(diff)
	}
}
