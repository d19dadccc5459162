package main

import "github.com/cuelight/cuelight/store"

// shortID is enough of an id to type: its end, since the beginnings are times.
func shortID(id store.ID) string {
	s := id.String()
	return s[len(s)-8:]
}
