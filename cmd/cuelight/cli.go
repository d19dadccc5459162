package main

import (
	"io"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/dbconn"
)

// cli is one invocation of the program.
type cli struct {
	sig *daemon.Signals
	in  io.Reader
	out *console.Stream
	err *console.Stream

	dbconn.Options
	args          []string // the command line
	configPath    string
	json          bool
	locationFlags string // the flags that select directories and the database, as given
}
