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
	taken, err := system.TriggerTimes(t.Context(), url, 10000)
	must(t, err)
	for act, each := range taken {
		t.Logf("%s takes %v", act, each)
	}
	if len(taken) != 5 {
		t.Errorf("measured is %v", taken)
	}
	var left int
	must(t, pool.QueryRow(t.Context(), `select count(*) from tasks`).Scan(&left))
	if left != 0 {
		t.Errorf("%d tasks are left", left)
	}
}
