package main

import (
	"slices"
	"time"

	"github.com/cuelight/cuelight/bench/cuelight"
	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/peers/polling"
	"github.com/cuelight/cuelight/bench/peers/river"
)

// allSystems returns the systems under test.
func allSystems() []harness.System {
	return []harness.System{
		cuelight.System,
		cuelight.Remote,
		river.Tx(),
		river.Fast(),
		river.Default(),
		polling.Every("polling_5s", 5*time.Second),
	}
}

// systemByName returns the system with a name.
func systemByName(name string) (s harness.System, ok bool) {
	all := allSystems()
	i := slices.IndexFunc(all, func(s harness.System) bool { return s.Name == name })
	if i < 0 {
		return s, false
	}
	return all[i], true
}

// The systems of a comparison. Notified systems can be compared sample by sample; one sample
// of river_default or of polling takes seconds.
var (
	tunedRiver     = []string{"river_tx", "river_fast"}
	localAndRemote = []string{"cuelight", "cuelight_remote"}
	notified       = []string{"cuelight", "river_tx", "river_fast"}
	defaultRiver   = []string{"river_default"}
	pollers        = []string{"polling_5s"}
)
