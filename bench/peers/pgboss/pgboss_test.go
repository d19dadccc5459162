package pgboss_test

import (
	"testing"

	"github.com/cuelight/cuelight/bench/harness/harnesstest"
	"github.com/cuelight/cuelight/bench/peers/pgboss"
)

func TestMain(m *testing.M) { harnesstest.Main(m) }

func TestSystem_PassesTheChecksOfTheHarness(t *testing.T) { harnesstest.Check(t, pgboss.System) }
