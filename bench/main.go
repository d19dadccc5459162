// Command bench measures Cuelight: beside what its database can do at best, and
// beside its peers, all in one run, on one throw-away PostgreSQL server.
//
//	cd bench && go run .            # all of it: half an hour
//	cd bench && go run . -quick     # three minutes
//	cd bench && go run . -quick -only e2e,drain,floor -contestants cuelight
//	cd bench && go run . -report results/2026-11-20T1805Z-full.json
//
// It prints the figures while it goes, and at the end the targets. A dated result
// with all raw figures, and a report with plots, are written to bench/results. The
// last line of a quick run is one JSON object, the summary.
//
// It needs PostgreSQL's programs, and Go to build the daemon; what needs more, such
// as Node or ffmpeg, is left out where that is missing, which the result says. It
// leaves no process and no database behind, however it ends.
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
	mode        string
	rounds      int
	only        []string // words of scenarios; none is all
	contestants []string // none is all
	dir         string
	out         string
	cuelight    string // the program; "" builds it
	media       string // with clips; "" generates them
	profile     string
	report      string // a result whose report is to be written anew; nothing is measured
}

func main() {
	if subprocess.IsChild() {
		os.Exit(subprocess.Main(contestants()))
	}
	if transcodebench.IsChild() {
		os.Exit(transcodebench.Main())
	}
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	} else if err != nil {
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // who is in a hurry asks twice
	if o.report != "" {
		err = rewrite(o.report, os.Stdout)
	} else {
		err = profiled(o.profile, func() error { return run(ctx, o, os.Stdout) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// parse reads the command line. What is wrong with it has been printed.
func parse(args []string, say io.Writer) (options, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(say)
	quick := flags.Bool("quick", false, "three minutes: fewer rounds, smaller sizes, the figures of the summary")
	once := flags.Bool("once", false, "less than one minute: everything once, to see that it works")
	o := options{mode: modeFull}
	flags.IntVar(&o.rounds, "rounds", 0, "how many rounds; 0 is what the mode has")
	only := flags.String("only", "", "the scenarios to measure, such as e2e,drain,floor; empty is all")
	who := flags.String("contestants", "", "the contestants to measure, such as cuelight,river_tx; empty is all")
	flags.StringVar(&o.dir, "dir", defaultDir(), "where the database is made, on a disk and not in memory")
	flags.StringVar(&o.out, "out", defaultOut(), "where the result and the report are written; empty is nowhere")
	flags.StringVar(&o.cuelight, "cuelight", "", "the daemon's program; empty builds it from the sources here")
	flags.StringVar(&o.media, "media", defaultMedia(), "a folder with the shared clips; those that are not there are generated")
	flags.StringVar(&o.report, "report", "", "measure nothing, and write the report of this JSON file anew, beside it")
	flags.StringVar(&o.profile, "cpuprofile", "", "write a profile of this process to the file")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if *quick {
		o.mode = modeQuick
	}
	if *once {
		o.mode = modeOnce
	}
	o.only, o.contestants = words(*only), words(*who)
	if err := o.check(flags.NArg(), *quick && *once); err != nil {
		fmt.Fprintln(say, "bench:", err)
		flags.Usage()
		return o, err
	}
	return o, nil
}

func (o options) check(args int, both bool) error {
	switch {
	case args > 0:
		return errors.New("it takes no arguments")
	case both:
		return errors.New("-quick and -once are two things")
	case o.rounds < 0:
		return errors.New("-rounds is negative")
	}
	for _, name := range o.contestants {
		if find(contestants(), name) == nil {
			return fmt.Errorf("there is no contestant %q", name)
		}
	}
	known := scenarios()
	for _, word := range o.only {
		if !known[word] {
			return fmt.Errorf("there is no scenario %q", word)
		}
	}
	return nil
}

func words(list string) []string {
	return strings.FieldsFunc(list, func(c rune) bool { return c == ',' || c == ' ' })
}
