package polling_test

import (
	"testing"
	"time"

	"github.com/cuelight/cuelight/bench/harness/harnesstest"
	"github.com/cuelight/cuelight/bench/peers/polling"
)

func TestMain(m *testing.M) { harnesstest.Main(m) }

func TestSystem_PassesTheChecksOfTheHarness(t *testing.T) {
	harnesstest.Check(t, polling.Every("polling_20ms", 20*time.Millisecond))
}
