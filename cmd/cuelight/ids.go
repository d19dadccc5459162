package main

import "github.com/cuelight/cuelight/store"

// shortID returns the end of an id, which commands accept. The beginning is a time, which
// many ids share.
func shortID(id store.ID) string {
	s := id.String()
	return s[len(s)-8:]
}
