package webhook

import (
	"testing"

	"github.com/cuelight/cuelight/store"
)

// Pipelines share only the webhooks' tables.
func TestRun_DeliversOnlyEventsOfThePipeline(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	g, err := store.NewGraph("podcast", store.Node{Name: "fetch"}, store.Node{Name: "encode", Needs: []string{"fetch"}})
	must(t, err)
	podcasts := store.New(b.pool, g)
	_, err = podcasts.Migrate(t.Context())
	must(t, err)
	other := b.newWebhooks(Options{Store: podcasts, Graph: g})
	mine, theirs := newReceiver(t, nil), newReceiver(t, nil)
	b.add(mine.URL, "submitted", "alert")
	_, err = other.Add(t.Context(), Settings{URL: theirs.URL, Types: []string{"submitted", "alert"}})
	must(t, err)
	b.run()
	b.start(other)
	video := b.submit()
	r, err := podcasts.Submit(t.Context(), store.Submission{Source: "a.mp3"})
	must(t, err)
	must(t, b.Raise(t.Context(), AlertListenerDown, nil))
	must(t, other.Raise(t.Context(), AlertDiskLow, nil))
	for rc, want := range map[*receiver]struct {
		task     store.ID
		pipeline string
		alert    string
	}{mine: {video, "video", AlertListenerDown}, theirs: {r.ID, "podcast", AlertDiskLow}} {
		for _, m := range rc.waitForRequests(b, 2) {
			if m.Data.Pipeline != want.pipeline || m.Type != "submitted" && m.Type != want.alert ||
				m.Data.Task != nil && m.Data.Task.ID != want.task {
				t.Errorf("%s got %s", want.pipeline, m.body)
			}
		}
	}
	b.waitForPending(0)
	if s, err := other.Stats(t.Context()); err != nil || s != (Stats{}) {
		t.Errorf("stats are %+v, %v", s, err)
	}
	if len(mine.requests()) != 2 || len(theirs.requests()) != 2 {
		t.Errorf("got %s; %s", eventTypes(mine.requests()), eventTypes(theirs.requests()))
	}
}
