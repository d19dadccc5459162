package graphile_test

import (
	"testing"

	"github.com/cuelight/cuelight/bench/contest/contesttest"
	"github.com/cuelight/cuelight/bench/peers/graphile"
)

func TestMain(m *testing.M) { contesttest.Main(m) }

func TestEveryStageOnceAndInOrder(t *testing.T) {
	t.Parallel()
	contesttest.Run(t, graphile.New())
}

func TestStopsInTheMiddleOfWork(t *testing.T) {
	t.Parallel()
	contesttest.RunStop(t, graphile.New())
}
