package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// defaultDir is on a disk, and the server's user can enter it.
const defaultDir = "/var/tmp"

// options are the flags.
type options struct {
	mode     mode
	rounds   int
	only     []string // names of scenarios; empty for all
	systems  []string // empty for all
	dir      string
	out      string
	against  string   // a revision to compare with; "" for none
	settings []string // of the server, as "name=value"
}

// parseOptions reads the command line. It prints an error before it returns it.
func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	modes := map[mode]*bool{
		quick: flags.Bool("quick", false, "run for three minutes: fewer rounds, smaller sizes, the figures of the summary"),
		once:  flags.Bool("once", false, "run everything once, in its smallest size, to check that it works"),
		held: flags.Bool("snapshot", false, "measure a steady load before, while and after a snapshot is held elsewhere: 50 minutes "+
			"for each of eight runs"),
	}
	list := func(to *[]string) func(string) error {
		return func(text string) error {
			*to = strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' })
			return nil
		}
	}
	flags.IntVar(&o.rounds, "rounds", 0, "number of rounds; 0 for the mode's own")
	flags.Func("only", "scenarios to measure, such as e2e,drain,floor; empty for all", list(&o.only))
	flags.Func("systems", "systems to measure, such as cuelight,river_tx; empty for all", list(&o.systems))
	flags.StringVar(&o.dir, "dir", defaultDir, "directory for the database, on a disk and not in memory")
	results := filepath.Join(proofkit.ProjectDir(), "bench", "results")
	flags.StringVar(&o.out, "out", results, "directory for the result and the report; empty for none")
	flags.Func("set", "further settings of the PostgreSQL server, such as wal_init_zero=off,min_wal_size=2GB", list(&o.settings))
	flags.StringVar(&o.against, "against", "",
		"revision of Cuelight, such as HEAD~1, to measure in turns with this one; prints the ratios and writes no result")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	err := o.check(flags.NArg())
	for m, isSet := range modes {
		if *isSet && o.mode != full {
			err = errors.New("-quick, -once and -snapshot exclude each other")
		}
		if *isSet {
			o.mode = m
		}
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		flags.Usage()
	}
	return o, err
}

func (o options) check(args int) error {
	switch {
	case args > 0:
		return errors.New("bench takes no arguments")
	case o.against != "" && len(o.systems) > 0:
		return errors.New("-against measures Cuelight alone, without -systems")
	case o.rounds < 0:
		return errors.New("-rounds is negative")
	}
	scenarios, ofSystems := names()
	check := func(what string, given, known []string) error {
		for _, name := range given {
			if !slices.Contains(known, name) {
				return fmt.Errorf("unknown %s %q; known: %s", what, name, strings.Join(known, ", "))
			}
		}
		return nil
	}
	return cmp.Or(check("scenario", o.only, scenarios), check("system", o.systems, ofSystems))
}

// mediaDir returns the directory with clips that CUELIGHT_TEST_MEDIA names, or
// ../shared/media of the project. It is absolute, because -against runs programs in other directories.
func mediaDir() string {
	dir := cmp.Or(os.Getenv("CUELIGHT_TEST_MEDIA"), filepath.Join(proofkit.ProjectDir(), "..", "shared", "media"))
	dir, _ = filepath.Abs(dir) // "" without a working directory
	return dir
}
