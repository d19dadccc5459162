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

// A stage of one's own may put its source into anything: net/http does, with the
// query, in each of its errors.
func TestSecretOfASource_IsNeitherToldNorKept(t *testing.T) {
	t.Parallel()
	const source = "s3://key:hunter22@bucket/clip.mp4?X-Amz-Signature=c0ffee123"
	var b bundle
	notes := make(chan string, 1)
	b = setup(t,
		stages.Stage{Name: "asks", MaxAttempts: 1, Work: func(ctx context.Context, j *stages.Job) (any, error) {
			if j.Source != source {
				return nil, fmt.Errorf("the stage was given %q", j.Source)
			}
			j.Progress(stages.Progress{Percent: -1, Note: "open " + j.Source})
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, j.Source, nil)
			if err == nil {
				_, err = http.DefaultClient.Do(r)
			}
			return nil, err
		}},
		stages.Stage{Name: "panics", MaxAttempts: 1, Work: func(_ context.Context, j *stages.Job) (any, error) { panic(j.Source) }},
	)
	receipt, err := b.Submit(t.Context(), store.Submission{Source: source})
	if err != nil {
		t.Fatal(err)
	}
	r := b.start(func(r *stages.Runner) {
		tell := r.Observe
		r.Observe = func(e stages.Event) {
			if e.Kind == stages.StageProgress {
				notes <- e.Progress.Note
			}
			tell(e)
		}
	})
	told := []string{r.wait(t, stages.StageDead).Err.Error(), r.wait(t, stages.StageDead).Err.Error(), <-notes}
	for _, a := range b.history(receipt.ID) {
		told = append(told, a.Error)
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
	if len(told) != 5 {
		t.Fatalf("told %q", told)
	}
	for _, text := range append(told, string(raw)) {
		if strings.Contains(text, "c0ffee") || strings.Contains(text, "hunter") {
			t.Errorf("it is told: %s", text)
		}
		if !strings.Contains(text, "s3://bucket/clip.mp4") {
			t.Errorf("the source is not told: %s", text)
		}
	}
}
