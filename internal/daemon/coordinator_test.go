package daemon

import (
	"net/http"
	"testing"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
)

func TestMayOffer_IsTheLabelsOfTheKeyAndEncoders(t *testing.T) {
	t.Parallel()
	keys := access.NewKeyStore(pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL)))
	guard, err := access.New(access.Options{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		labels []string
		want   map[string]bool
	}{
		"labels": {[]string{"gpu"}, map[string]bool{"gpu": true, "north": false, "libx265": true, "h264_nvenc": true, "hardware": false}},
		"none":   {nil, map[string]bool{"gpu": true, "north": true}},
	} {
		_, text, err := keys.CreateKey(t.Context(), name, access.Work.String(), c.labels...)
		if err != nil {
			t.Fatal(err)
		}
		r := (&http.Request{}).WithContext(requestOf(t, guard, text))
		for offer, want := range c.want {
			if got := mayOffer(r, offer); got != want {
				t.Errorf("%s: %s is %t", name, offer, got)
			}
		}
	}
}
