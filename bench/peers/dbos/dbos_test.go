package dbos_test

import (
	"testing"

	"github.com/cuelight/cuelight/bench/contest/contesttest"
	"github.com/cuelight/cuelight/bench/peers/dbos"
)

func TestMain(m *testing.M) { contesttest.Main(m) }

func TestEveryStageOnceAndInOrder(t *testing.T) {
	t.Parallel()
	contesttest.Run(t, dbos.New())
}

func TestStopsInTheMiddleOfWork(t *testing.T) {
	t.Parallel()
	contesttest.RunStop(t, dbos.New())
}
