package cuelight_test

import (
	"testing"

	"github.com/cuelight/cuelight/internal/pgtest"
)

func TestTriggerTimes_MeasuresEachChangeAndRollsBack(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	url := pool.Config().ConnString()
	must(t, system.Setup(t.Context(), url))
	times, err := system.TriggerTimes(t.Context(), url, 10000)
	must(t, err)
	for change, each := range times {
		t.Logf("%s takes %v", change, each)
	}
	if len(times) != 5 {
		t.Errorf("measured changes: %v", times)
	}
	var left int
	must(t, pool.QueryRow(t.Context(), `select count(*) from tasks`).Scan(&left))
	if left != 0 {
		t.Errorf("%d tasks are left", left)
	}
}
