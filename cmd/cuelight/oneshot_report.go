package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// setFooter shows how many of several tasks have ended.
func (j *oneShot) setFooter() {
	if len(j.inputs) > 1 {
		j.progress.footer = fmt.Sprintf("%d of %d done", len(j.inputs)-j.open, len(j.inputs))
	}
}

// reportEnd reports on a task, once for every time that it was given.
func (j *oneShot) reportEnd(in *input, r taskReport) error {
	in.done = true
	j.open--
	j.setFooter()
	j.progress.clear()
	if !j.progress.quiet {
		for _, w := range r.Warnings {
			j.progress.printf("%s: %s: %s", in.label, j.c.err.Paint(console.Yellow, "warning"), usererr.Printable(w))
		}
	}
	if r.Published != nil {
		j.published += len(in.args)
		if j.firstPath == "" {
			j.firstPath = *r.Published
		}
	} else {
		j.failed += len(in.args)
		j.printFailure(in, r)
	}
	for _, source := range in.args {
		r.Source = source
		if j.c.json {
			if err := j.c.writeJSON(r); err != nil {
				return err
			}
		} else if r.Published != nil {
			if !j.progress.quiet {
				j.progress.printf("%s: %s", in.label, j.c.err.Paint(console.Green, "published"))
			}
			if _, err := fmt.Fprintln(j.c.out, *r.Published); err != nil {
				return err
			}
		}
	}
	return nil
}

// printFailure prints failures without an event in this process: the task was cancelled,
// or died in another process.
func (j *oneShot) printFailure(in *input, r taskReport) {
	switch {
	case r.Status == store.StatusCancelled:
		j.progress.printf("%s: cancelled", in.label)
	case !in.printed && r.Error != nil:
		j.progress.printf("%s: %s: %s", in.label, j.c.err.Paint(console.Red, "failed"), usererr.FirstLine(*r.Error))
	}
}

// result prints the summary and returns the exit code.
func (j *oneShot) result(ctx context.Context) error {
	if j.err != nil {
		return j.err
	}
	if j.open > 0 {
		if s, ok := daemon.SignalOf(ctx); ok {
			j.resetPriorities()
			return exitStatus(s.ExitCode())
		}
		return errors.New("the worker stopped before all tasks were finished; cuelight serve continues with them")
	}
	if j.firstPath != "" && !j.c.json && !j.progress.quiet {
		j.progress.printf("\n%s", j.c.playbackHint(j.firstPath))
	}
	if j.failed > 0 && !j.progress.quiet {
		j.progress.printf("%d of %d not published; "+
			"cuelight list --status dead lists such tasks, cuelight show ID shows the errors",
			j.failed, j.failed+j.published)
	}
	return exitStatusFor(j.published, j.published+j.failed)
}

// resetPriorities gives the unfinished tasks the default priority: a daemon works on them now.
func (j *oneShot) resetPriorities() {
	var left []store.ID
	for id, in := range j.inputs {
		if !in.done {
			left = append(left, id)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	// If that fails they keep their priority, which does no harm.
	_ = j.db.Store.ChangePriority(ctx, left, runPriority, 0)
	j.progress.printf("%s not finished; cuelight serve continues with the rest, cuelight cancel %s cancels",
		console.Plural(len(left), "task"), shortID(left[0]))
}

func (c *cli) playbackHint(path string) string {
	if video.IsBucketAddress(path) {
		return "Watch it with any player, at the address under which the bucket is served; docs/storage.md says how"
	}
	return fmt.Sprintf("Watch it:  ffplay %s\n"+
		"      or:  mpv, or VLC (Media > Open Network Stream) with %s\n"+
		"In a browser: %s serve --listen 127.0.0.1:8080%s",
		console.ShellQuote(path), fileURL(path), console.ShellQuote(os.Args[0]), c.locationFlags)
}

// locationFlags returns the flags of a command line that select directories and the
// database, for another command.
func locationFlags(flags *pflag.FlagSet) string {
	var words strings.Builder
	for _, name := range []string{configFlag, "data-dir", "local-dir", "publish-dir", "database-url"} {
		f := flags.Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		value := console.ShellQuote(f.Value.String())
		if name == "database-url" && value != "private" {
			value = "ADDRESS" // it may have a password
		}
		fmt.Fprintf(&words, " --%s %s", name, value)
	}
	return words.String()
}
