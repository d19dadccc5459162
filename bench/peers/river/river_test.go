package river_test

import (
	"testing"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/harness/harnesstest"
	"github.com/cuelight/cuelight/bench/peers/river"
)

func TestMain(m *testing.M) { harnesstest.Main(m) }

func TestSystem_PassesTheChecksOfTheHarness(t *testing.T) {
	t.Parallel()
	for _, s := range []harness.System{river.Tx(), river.Fast(), river.Default()} {
		t.Run(s.Name, func(t *testing.T) { harnesstest.Check(t, s) })
	}
}
