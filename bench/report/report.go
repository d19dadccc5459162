// Package report tells what a benchmark run found: a report for people, with
// tables and plots, the targets and whether they were reached, and one line for
// programs. All of it is made from a [result.Result] and nothing else, so that
// a report can be written again from the JSON, years later and elsewhere.
//
//	path, err := report.Write(r, report.Options{Dir: "bench/results"})
//	if report.Judges(r) {
//		report.PrintTargets(os.Stdout, r)
//	}
//	fmt.Printf("%s\n", report.Summary(r))
//
// What was not measured is not in it: a table or a plot without figures is left
// out, a target is "not measured", and a value of the line is null. A figure
// that this package knows nothing of is in a table of its own at the end.
//
// The plots are drawn by gonum.org/v1/plot. They have no ground, and colours
// that follow the reader's preference for light or dark.
package report

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cuelight/cuelight/bench/result"
)

// Options say where a report goes.
type Options struct {
	// Dir is the directory, which is made if it is missing. The report is
	// NAME.md in it, where NAME is the result's, and its plots NAME-….svg.
	Dir string

	// Latest writes it a second time as latest.md and latest-….svg, for those
	// who link to it. A plot that this result has no figures for stays as an
	// earlier one left it.
	Latest bool
}

// Write writes the report and its plots, and returns the report's path. No file
// is ever there in part.
func Write(r *result.Result, o Options) (string, error) {
	if err := os.MkdirAll(o.Dir, 0o777); err != nil {
		return "", err
	}
	drawn := plots(r)
	path := filepath.Join(o.Dir, r.Name()+".md")
	if err := write(r, drawn, o.Dir, r.Name()); err != nil {
		return "", err
	}
	if o.Latest {
		return path, write(r, drawn, o.Dir, "latest")
	}
	return path, nil
}

// Rewrite writes the report of a result anew, beside its JSON: also as latest.md
// and latest-….svg if these are of the same result. It returns the report's path.
func Rewrite(file string) (string, error) {
	r, err := result.Read(file)
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(file)
	latest, err := os.ReadFile(filepath.Join(dir, "latest.md"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return Write(r, Options{Dir: dir, Latest: bytes.Contains(latest, []byte("("+r.Name()+".json)"))})
}

// write leaves the report for last: when it is there, its plots are.
func write(r *result.Result, drawn []drawing, dir, name string) error {
	for _, d := range drawn {
		if err := result.WriteFileAtomically(filepath.Join(dir, name+"-"+d.name+".svg"), d.svg); err != nil {
			return err
		}
	}
	return result.WriteFileAtomically(filepath.Join(dir, name+".md"), markdown(r, drawn, name))
}
