package remote_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/cuelight/cuelight/stages"
)

// It reports the median time from a submission to the start of the work at a remote worker, and that
// of a round trip to the coordinator, which the first one contains at least one and a half times.
func BenchmarkRemoteWorker_StartsAfterASubmission(b *testing.B) {
	started := make(chan time.Time, 1)
	s := setup(b, stages.Stage{Name: "first", Work: func(context.Context, *stages.Job) (any, error) {
		started <- time.Now()
		return nil, nil
	}})
	worker := s.work(nil)
	var starts, trips []time.Duration
	for b.Loop() {
		submitted := time.Now()
		s.submit("a source")
		starts = append(starts, (<-started).Sub(submitted))
		worker.wait(b, stages.StageCompleted)
		trips = append(trips, s.roundTrip(b))
	}
	median := func(all []time.Duration) float64 {
		slices.Sort(all)
		return float64(all[len(all)/2].Microseconds()) / 1000
	}
	b.ReportMetric(median(starts), "ms-start-p50")
	b.ReportMetric(median(trips), "ms-round-trip-p50")
	b.ReportMetric(0, "ns/op")
}

func (s *site) roundTrip(b *testing.B) time.Duration {
	r, err := http.NewRequest(http.MethodGet, s.url+"/pipeline", nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer key-1")
	sent := time.Now()
	response, err := s.http.Client().Do(r)
	if err != nil {
		b.Fatal(err)
	}
	response.Body.Close()
	return time.Since(sent)
}
