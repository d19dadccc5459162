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

// contestants are all there are.
func contestants() []harness.System {
	return []harness.System{
		cuelight.System{},
		river.Tx(),
		river.Fast(),
		river.Default(),
		graphile.New(),
		dbos.New(),
		pgboss.New(),
		polling.Every5s(),
		polling.Every1s(),
	}
}

// find is the contestant of a name, or nil.
func find(all []harness.System, name string) harness.System {
	for _, c := range all {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

// Who takes part in what. Those who are woken can be compared sample by sample;
// one sample of the sleepers takes seconds, and so does one of the pollers, whom
// it does not matter how many there are.
func ours() []string     { return []string{"cuelight"} }
func rivers() []string   { return []string{"river_tx", "river_fast"} }
func woken() []string    { return append(append(ours(), rivers()...), "graphile", "pgboss", "dbos") }
func sleepers() []string { return []string{"river_default"} }
func pollers() []string  { return []string{"polling_5s", "polling_1s"} }
