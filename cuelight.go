// Package cuelight holds the database side of Cuelight: the two SQL files that
// create the built-in video pipeline, as a person reads them and as
// `psql -f` loads them.
//
// It imports nothing. To embed Cuelight in a program, start at package store.
package cuelight

import _ "embed"

// Schema is schema.sql: the tables of the video pipeline, their constraints
// and their indexes. Applying it again changes nothing.
//
//go:embed schema.sql
var Schema string

// Triggers is triggers.sql: the notifications that wake a stage's workers, and
// functions for psql. Applying it again replaces
// them by themselves.
//
//go:embed triggers.sql
var Triggers string
