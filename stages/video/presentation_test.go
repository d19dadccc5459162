package video

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

func TestFirstPublished_IsThatOfTheEarlierResult(t *testing.T) {
	t.Parallel()
	failure := errors.New("the database is away")
	for name, c := range map[string]struct {
		raw  string
		err  error
		want string // empty: now
	}{
		"published before":           {`{"published_at": "2030-01-31T08:00:00Z"}`, nil, "2030-01-31T08:00:00Z"},
		"by an older version":        {`{"master": "a/master.m3u8"}`, nil, ""},
		"never":                      {"", store.ErrNotFound, ""},
		"not known":                  {"", failure, ""},
		"completed by somebody else": {"null", nil, ""},
	} {
		job := &stages.Job{Results: func(context.Context, string) (json.RawMessage, error) { return json.RawMessage(c.raw), c.err }}
		got, err := firstPublished(t.Context(), job)
		if (err != nil) != (c.err == failure) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		isNow := time.Since(got).Abs() < time.Minute
		if err == nil && isNow != (c.want == "") || c.want != "" && got.Format(time.RFC3339) != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}

func TestNewPresentation_HasWhatPlayersShow(t *testing.T) {
	t.Parallel()
	_, m := newPublished(t)
	p := newPresentation("01a2/gen-0001-a", m.tr, m.as)
	if p.Duration <= 0 || len(p.Renditions) == 0 {
		t.Fatalf("%+v", p)
	}
	if r := p.Renditions[0]; r.Height == 0 || r.Codecs == "" || r.Bandwidth == 0 {
		t.Errorf("%+v", r)
	}
}
