package report_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
)

func TestWarnings_ComeFromTheLatestResults(t *testing.T) {
	t.Parallel()
	attempt := func(stage, outcome, result string) store.Attempt {
		return store.Attempt{Stage: stage, Outcome: outcome, Result: json.RawMessage(result)}
	}
	got := report.Warnings([]store.Attempt{
		attempt("ingest", "completed", `{"warnings": ["of an earlier attempt"]}`),
		attempt("ingest", "failed", ""),
		attempt("ingest", "completed", `{"warnings": ["odd header"]}`),
		attempt("transcode", "completed", `{"warnings": ["odd header", "damaged"]}`),
		attempt("transcode", "failed", ""),
		attempt("other", "completed", `{"warnings": "not a list"}`),
		attempt("number", "completed", `7`),
	})
	if want := []string{"odd header", "damaged"}; !slices.Equal(got, want) {
		t.Errorf("warnings %q; want %q", got, want)
	}
	if none := report.Warnings(nil); none == nil || len(none) != 0 {
		t.Errorf("without attempts: %#v; want an empty list", none)
	}
}
