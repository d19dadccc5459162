package web_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/store"
)

func TestSearch_DoesNotMatchHiddenPartsOfSources(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for n := range 3 {
		b.submit(fmt.Sprintf("https://user:hunter2@studio.example/%d.mp4?token=abc", n))
	}
	for _, part := range []string{"hunter2", "user:", "token=a"} {
		for _, limit := range []int{1, 2, 100} {
			path := fmt.Sprintf("%s/tasks?limit=%d&source=%s", api, limit, url.QueryEscape(part))
			var hidden, whole page
			got := b.do(call{method: "GET", path: path, as: readText}).wantStatus(200, &hidden)
			if len(hidden.Tasks) > 0 || hidden.Next != "" || got.header.Get("Link") != "" {
				t.Errorf("%s: a reader gets %s, %v", path, got.body, got.header)
			}
			b.get(path).wantStatus(200, &whole)
			if len(whole.Tasks) != min(limit, 3) {
				t.Errorf("%s: the admin gets %d tasks", path, len(whole.Tasks))
			}
		}
	}
}

func TestSearch_ContinuesPastHiddenMatches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var want []store.ID
	for n := range 9 {
		if n%4 == 0 {
			want = append([]store.ID{b.submit(fmt.Sprintf("https://studio.example/key/%d.mp4", n))}, want...)
		} else {
			b.submit(fmt.Sprintf("https://studio.example/%d.mp4?key=1", n))
		}
	}
	var got []store.ID
	for path := api + "/tasks?limit=1&source=key"; path != ""; {
		var p page
		b.do(call{method: "GET", path: path, as: readText}).wantStatus(200, &p)
		if len(p.Tasks) != 1 {
			t.Fatalf("%s has %+v", path, p)
		}
		got, path = append(got, p.Tasks[0].TaskID), p.Next
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

func TestSearch_FindsTitles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r, err := b.Submit(t.Context(), store.Submission{Source: "/uploads/1", Params: []byte(`{"title": "Holidays"}`)})
	if err != nil {
		t.Fatal(err)
	}
	b.submit("/uploads/2")
	var p page
	b.get(api+"/tasks?source=Holi").wantStatus(200, &p)
	if len(p.Tasks) != 1 || p.Tasks[0].TaskID != r.ID {
		t.Errorf("found %+v", p)
	}
}

func TestAudit_HasNoSecretOfASourceFilter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.post(api+"/tasks/retry", map[string]any{"filter": map[string]any{"source": "token=abc"}}).wantStatus(200, nil)
	entries, err := operators.Audits(t.Context(), b.pool, 0, 0)
	if err != nil || len(entries) != 1 || strings.Contains(string(entries[0].Detail), "abc") {
		t.Errorf("%+v, %v", entries, err)
	}
}
