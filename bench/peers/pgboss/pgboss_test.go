package pgboss_test

import (
	"testing"

	"github.com/cuelight/cuelight/bench/contest/contesttest"
	"github.com/cuelight/cuelight/bench/peers/pgboss"
)

func TestMain(m *testing.M) { contesttest.Main(m) }

func TestEveryStageOnceAndInOrder(t *testing.T) {
	t.Parallel()
	contesttest.Run(t, pgboss.New())
}

func TestStopsInTheMiddleOfWork(t *testing.T) {
	t.Parallel()
	contesttest.RunStop(t, pgboss.New())
}
