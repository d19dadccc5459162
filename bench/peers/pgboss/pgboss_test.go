package pgboss_test

import (
	"testing"

	"github.com/cuelight/cuelight/bench/harness/harnesstest"
	"github.com/cuelight/cuelight/bench/peers/pgboss"
)

func TestMain(m *testing.M) { harnesstest.Main(m) }

func TestSystem_RunsEveryStageOnceAndInOrder(t *testing.T) {
	t.Parallel()
	harnesstest.CheckPipeline(t, pgboss.New())
}

func TestSystem_StopsDuringWork(t *testing.T) {
	t.Parallel()
	harnesstest.CheckStop(t, pgboss.New())
}
