package main

import (
	"github.com/cuelight/cuelight/bench/cuelight"
	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/peers/dbos"
	"github.com/cuelight/cuelight/bench/peers/graphile"
	"github.com/cuelight/cuelight/bench/peers/pgboss"
	"github.com/cuelight/cuelight/bench/peers/polling"
	"github.com/cuelight/cuelight/bench/peers/river"
)

// allSystems returns the systems under test.
func allSystems() []harness.System {
	return []harness.System{
		cuelight.System{},
		river.Tx(),
		river.Fast(),
		river.Default(),
		graphile.System{},
		dbos.System{},
		pgboss.System{},
		polling.Every5s(),
		polling.Every1s(),
	}
}

// systemNamed returns the system with a name, or nil.
func systemNamed(name string) harness.System {
	for _, s := range allSystems() {
		if s.Name() == name {
			return s
		}
	}
	return nil
}

// The systems of a comparison. Notified systems can be compared sample by sample; one sample
// of river_default or of polling takes seconds.
var (
	cuelightOnly = []string{"cuelight"}
	tunedRiver   = []string{"river_tx", "river_fast"}
	notified     = []string{"cuelight", "river_tx", "river_fast", "graphile", "pgboss", "dbos"}
	defaultRiver = []string{"river_default"}
	pollers      = []string{"polling_5s", "polling_1s"}
)
