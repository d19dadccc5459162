package polling_test

import (
	"testing"
	"time"

	"github.com/cuelight/cuelight/bench/contest/contesttest"
	"github.com/cuelight/cuelight/bench/peers/polling"
)

func TestMain(m *testing.M) { contesttest.Main(m) }

func TestEveryStageOnceAndInOrder(t *testing.T) {
	t.Parallel()
	contesttest.Run(t, polling.Every("polling_20ms", 20*time.Millisecond))
}

func TestStopsInTheMiddleOfWork(t *testing.T) {
	t.Parallel()
	contesttest.RunStop(t, polling.Every("polling_20ms", 20*time.Millisecond))
}
