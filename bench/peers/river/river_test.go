package river_test

import (
	"testing"

	"github.com/cuelight/cuelight/bench/contest"
	"github.com/cuelight/cuelight/bench/contest/contesttest"
	"github.com/cuelight/cuelight/bench/peers/river"
)

func TestMain(m *testing.M) { contesttest.Main(m) }

func TestEveryStageOnceAndInOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []contest.Contestant{river.Tx(), river.Fast(), river.Default()} {
		t.Run(c.Name(), func(t *testing.T) {
			t.Parallel()
			contesttest.Run(t, c)
		})
	}
}

func TestStopsInTheMiddleOfWork(t *testing.T) {
	t.Parallel()
	for _, c := range []contest.Contestant{river.Tx(), river.Fast()} {
		t.Run(c.Name(), func(t *testing.T) {
			t.Parallel()
			contesttest.RunStop(t, c)
		})
	}
}
