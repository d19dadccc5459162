package stages_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// Work may report its source anywhere: net/http puts it, with the query, into each of its
// errors.
func TestSourceSecrets_AreNeitherReportedNorStored(t *testing.T) {
	t.Parallel()
	const source = "s3://key:hunter22@bucket/clip.mp4?X-Amz-Signature=c0ffee123"
	var b bundle
	notes := make(chan string, 1)
	b = setup(t,
		stages.Stage{Name: "requests", MaxAttempts: 1, Work: func(ctx context.Context, j *stages.Job) (any, error) {
			if j.Source != source {
				return nil, fmt.Errorf("the job's source is %q", j.Source)
			}
			j.Progress(stages.Progress{Percent: -1, Note: "open " + j.Source})
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, j.Source, nil)
			if err == nil {
				_, err = http.DefaultClient.Do(r)
			}
			return nil, err
		}},
		stages.Stage{
			Name: "panics", MaxAttempts: 1, Work: func(_ context.Context, j *stages.Job) (any, error) { panic(j.Source) },
		},
	)
	receipt, err := b.Submit(t.Context(), store.Submission{Source: source})
	if err != nil {
		t.Fatal(err)
	}
	r := b.start(func(r *stages.Runner) {
		observe := r.Observe
		r.Observe = func(e stages.Event) {
			if e.Kind == stages.StageProgress {
				notes <- e.Progress.Note
			}
			observe(e)
		}
	})
	texts := []string{r.wait(t, stages.StageDead).Err.Error(), r.wait(t, stages.StageDead).Err.Error(), <-notes}
	for _, a := range b.history(receipt.ID) {
		texts = append(texts, a.Error)
	}
	r.stop()
	events, err := b.Events(t.Context(), store.EventQuery{})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(events)
	if err != nil {
		t.Fatal(err)
	}
	if len(texts) != 5 {
		t.Fatalf("the texts are %q, want five", texts)
	}
	for _, text := range append(texts, string(raw)) {
		if strings.Contains(text, "c0ffee") || strings.Contains(text, "hunter") {
			t.Errorf("the secret is in: %s", text)
		}
		if !strings.Contains(text, "s3://bucket/clip.mp4") {
			t.Errorf("the source is missing from: %s", text)
		}
	}
}
