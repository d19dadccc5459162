// Command bench measures Cuelight, the lower bounds of its database, and its peers, all in
// one run on one temporary PostgreSQL server.
//
//	cd bench && go run .            # everything: an hour
//	cd bench && go run . -quick     # three minutes
//	cd bench && go run . -snapshot  # with a snapshot held elsewhere: 50 minutes for each of eight runs
//	cd bench && go run . -quick -only e2e,drain,floor -systems cuelight
//	cd bench && go run . -quick -against HEAD~1 -only e2e,cpu,drain -rounds 5
//	cd bench && go run . -report results/2026-11-20T1805Z-full.json
//
// It prints figures while it runs, and the targets at the end. It writes a dated result with
// all raw figures, and a report with plots, to bench/results. The last line of a quick run is
// one JSON object, the summary.
//
// It needs PostgreSQL's programs, and Go to build the daemon. If ffmpeg is
// missing, it skips what needs it, and the result says so. It leaves no process and no
// database behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/cuelight/cuelight/bench/subprocess"
	"github.com/cuelight/cuelight/bench/transcodebench"
)

// options are the flags.
type options struct {
	mode       string
	rounds     int
	only       []string // names of scenarios; empty for all
	systems    []string // empty for all
	dir        string
	out        string
	cuelight   string // the program; "" builds it
	media      string // a directory with clips; "" generates them
	cpuProfile string
	report     string   // a result whose report to write again, without measuring
	against    string   // a revision to compare with; "" for none
	settings   []string // of the server, as "name=value"
}

func main() {
	subprocess.RunIfChild(allSystems())
	transcodebench.RunIfChild()
	o, err := parseOptions(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	} else if err != nil {
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if o.report != "" {
		err = rewriteReport(o.report, os.Stdout)
	} else if o.against != "" {
		err = compare(ctx, o, os.Stdout)
	} else {
		err = withCPUProfile(o.cpuProfile, func() error { return run(ctx, o, os.Stdout) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// parseOptions reads the command line. It prints an error before it returns it.
func parseOptions(args []string, stderr io.Writer) (options, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	quick := flags.Bool("quick", false, "run for three minutes: fewer rounds, smaller sizes, the figures of the summary")
	once := flags.Bool("once", false, "run everything once, in its smallest size, to check that it works")
	held := flags.Bool("snapshot", false, "measure a steady load before, while and after a snapshot is held elsewhere: 50 minutes "+
		"for each of eight runs")
	o := options{mode: modeFull}
	flags.IntVar(&o.rounds, "rounds", 0, "number of rounds; 0 for the mode's own")
	only := flags.String("only", "", "scenarios to measure, such as e2e,drain,floor; empty for all")
	systems := flags.String("systems", "", "systems to measure, such as cuelight,river_tx; empty for all")
	flags.StringVar(&o.dir, "dir", defaultDataDir(), "directory for the database, on a disk and not in memory")
	flags.StringVar(&o.out, "out", defaultResultsDir(), "directory for the result and the report; empty for none")
	flags.StringVar(&o.cuelight, "cuelight", "", "the daemon's program; empty to build it from these sources")
	flags.StringVar(&o.media, "media", defaultMediaDir(), "directory with shared clips; missing clips are generated")
	flags.StringVar(&o.report, "report", "", "measure nothing; write the report of this JSON file again")
	set := flags.String("set", "", "further settings of the PostgreSQL server, such as wal_init_zero=off,min_wal_size=2GB")
	flags.StringVar(&o.against, "against", "",
		"revision of Cuelight, such as HEAD~1, to measure in turns with this one; prints the ratios and writes no result")
	flags.StringVar(&o.cpuProfile, "cpuprofile", "", "file for a CPU profile of this process")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if *quick {
		o.mode = modeQuick
	}
	if *once {
		o.mode = modeOnce
	}
	if *held {
		o.mode = modeHeld
	}
	o.only, o.systems, o.settings = splitList(*only), splitList(*systems), splitList(*set)
	if err := o.check(flags.NArg(), moreThanOne(*quick, *once, *held)); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		flags.Usage()
		return o, err
	}
	return o, nil
}

func (o options) check(args int, severalModes bool) error {
	switch {
	case args > 0:
		return errors.New("bench takes no arguments")
	case severalModes:
		return errors.New("-quick, -once and -snapshot exclude each other")
	case o.against != "" && o.report != "":
		return errors.New("-against and -report exclude each other")
	case o.against != "" && (o.cuelight != "" || o.cpuProfile != "" || len(o.systems) > 0):
		return errors.New("-against measures Cuelight alone, without -cuelight, -cpuprofile and -systems")
	case o.rounds < 0:
		return errors.New("-rounds is negative")
	}
	for _, name := range o.systems {
		if _, ok := systemByName(name); !ok {
			return fmt.Errorf("unknown system %q", name)
		}
	}
	known := scenarioNames()
	for _, name := range o.only {
		if !known[name] {
			return fmt.Errorf("unknown scenario %q", name)
		}
	}
	return nil
}

func moreThanOne(flags ...bool) bool {
	n := 0
	for _, isSet := range flags {
		if isSet {
			n++
		}
	}
	return n > 1
}

func splitList(list string) []string {
	return strings.FieldsFunc(list, func(c rune) bool { return c == ',' || c == ' ' })
}

// isComplete reports whether everything is measured: only then is the report the latest.
func (o options) isComplete() bool {
	return o.mode == modeFull && o.rounds == 0 && len(o.only) == 0 && len(o.systems) == 0
}
