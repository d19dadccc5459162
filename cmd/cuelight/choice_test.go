package main

import "testing"

// For how long events are kept is for the daemons to say, if there may be any; nobody
// else ever deletes those of a private database that only commands use.
func TestCommandsThatWorkForAMomentDeleteNoEventsOfOthers(t *testing.T) {
	t.Parallel()
	for address, none := range map[string]bool{"postgres://u@one/db": true, "private": false, "": false} {
		if got := (&cli{databaseURL: address}).choose().keepEvents(); got < 0 != none || got > 0 {
			t.Errorf("%q: they are kept for %s", address, got)
		}
	}
}
