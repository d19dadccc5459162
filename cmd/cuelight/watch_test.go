package main

import (
	"bytes"
	"testing"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/store"
)

func TestWatchJSON_HasTheFieldsOfTheAPIWithoutTheToken(t *testing.T) {
	t.Parallel()
	out := &bytes.Buffer{}
	r := store.Running{
		Task: store.ID{15: 7}, Stage: "transcode", Token: store.ID{15: 9}, Attempt: 2, Percent: 34.5, ETA: 3,
		Note: "1080p",
	}
	w := &watcher{c: &cli{out: &console.Stream{Writer: out}, json: true}, running: make(map[daemon.StageKey]store.Running)}
	for range 2 { // the second time it has not moved
		if err := w.show(map[daemon.StageKey]store.Running{{Task: r.Task, Stage: r.Stage}: r}); err != nil {
			t.Fatal(err)
		}
	}
	const want = `{"task_id":"00000000-0000-0000-0000-000000000007","stage":"transcode","attempt":2,` +
		`"percent":34.5,"eta_s":3,"note":"1080p"}` + "\n"
	if out.String() != want {
		t.Errorf("got %s, want %s", out, want)
	}
}
