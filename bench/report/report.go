// Package report presents the result of a benchmark run: a report with tables and plots, the
// targets, and a summary line for programs. It uses only a [result.Result], so that a report
// can be written again from the JSON at any time.
//
//	path, err := report.Write(r, report.Options{Dir: "bench/results"})
//	if report.HasTargets(r) {
//		report.PrintTargets(os.Stdout, r, true)
//	}
//	fmt.Printf("%s\n", report.Summary(r))
//
// Tables and plots without figures are omitted; a target without figures is "not measured", and
// a value of the summary is null. Figures of unknown scenarios are in a table at the end.
//
// The plots are drawn by gonum.org/v1/plot. They have no background, and their colours follow
// the reader's preference for light or dark.
package report

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cuelight/cuelight/bench/result"
)

// Options configure where a report is written.
type Options struct {
	// Dir is the directory, which is created if necessary. The report is NAME.md, where NAME is
	// the result's, and its plots are NAME-….svg.
	Dir string

	// Latest also writes latest.md and latest-….svg. A plot without figures keeps its earlier
	// latest version.
	Latest bool
}

// Write writes the report and its plots, and returns the path of the report.
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

// Rewrite writes the report of a JSON file again, next to it, and returns its path. It also
// writes latest.md and its plots if these belong to the same result.
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

// write writes the report last: if it exists, its plots do.
func write(r *result.Result, drawn []drawing, dir, name string) error {
	for _, d := range drawn {
		if err := result.WriteFileAtomically(filepath.Join(dir, name+"-"+d.name+".svg"), d.svg); err != nil {
			return err
		}
	}
	return result.WriteFileAtomically(filepath.Join(dir, name+".md"), markdown(r, drawn, name))
}
