package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

// setFooter says how many are done, where that is worth a line.
func (j *oneShot) setFooter() {
	if len(j.given) > 1 {
		j.progress.footer = fmt.Sprintf("%d of %d done", len(j.given)-j.open, len(j.given))
	}
}

// end reports on a task, once for every time it was given.
func (j *oneShot) end(g *given, r taskReport) error {
	g.done = true
	j.open--
	j.setFooter()
	j.progress.aside()
	if r.Published != nil {
		j.done += len(g.words)
		if j.watched == "" {
			j.watched = *r.Published
		}
	} else {
		j.failed += len(g.words)
		j.tellFailure(g, r)
	}
	for _, source := range g.words {
		r.Source = source
		if j.c.json {
			if err := j.c.writeJSON(r); err != nil {
				return err
			}
		} else if r.Published != nil {
			if !j.progress.quiet {
				j.progress.say("%s: %s", g.label, j.c.err.paint(green, "published"))
			}
			if _, err := fmt.Fprintln(j.c.out, *r.Published); err != nil {
				return err
			}
		}
	}
	return nil
}

// tellFailure tells of an end that no event told of: a cancelled task, or one
// that died with another process.
func (j *oneShot) tellFailure(g *given, r taskReport) {
	switch {
	case r.Status == store.StatusCancelled:
		j.progress.say("%s: cancelled", g.label)
	case !g.told && r.Error != nil:
		j.progress.say("%s: %s: %s", g.label, j.c.err.paint(red, "failed"), usererr.FirstLine(*r.Error))
	}
}

// result is the exit code, after the last words.
func (j *oneShot) result(ctx context.Context) error {
	if j.err != nil {
		return j.err
	}
	if j.open > 0 {
		if s, ok := received(ctx); ok {
			j.leave()
			return quiet(s.code())
		}
		return errors.New("the work ended before the tasks did")
	}
	if j.watched != "" && !j.c.json && !j.progress.quiet {
		j.progress.say("\n%s", j.c.howToWatch(j.watched))
	}
	if j.failed > 0 && !j.progress.quiet {
		j.progress.say("%d of %d not published; cuelight list --status dead lists such tasks, cuelight show ID says more", j.failed, j.failed+j.done)
	}
	return verdict(j.done, j.done+j.failed)
}

const unawaitedSQL = `
/* nobody waits any more */
update tasks set priority = 0 where id = any($1::uuid[]) and priority = $2`

// leave says what is left behind, and lets it wait its turn from now on.
func (j *oneShot) leave() {
	var left []store.ID
	for id, g := range j.given {
		if !g.done {
			left = append(left, id)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	// Where that fails they keep their place, which is no harm.
	_, _ = j.db.Pool.Exec(ctx, unawaitedSQL, left, awaited)
	j.progress.say("%s not finished; cuelight serve goes on with what is left, cuelight cancel %s drops it",
		plural(len(left), "task"), shortID(left[0]))
}

func (c *cli) howToWatch(path string) string {
	return fmt.Sprintf("Watch it:  ffplay %s\n"+
		"      or:  mpv, or VLC (Media > Open Network Stream) with %s\n"+
		"In a browser: %s serve --listen 127.0.0.1:8080%s", shellQuote(path), "file://"+escapePath(path), shellQuote(os.Args[0]), c.where)
}

// whereFlags are the flags of a command line that say where things are, for another
// command that is to find them there.
func whereFlags(flags *pflag.FlagSet) string {
	var words strings.Builder
	for _, name := range []string{"data-dir", "publish-dir", "database-url"} {
		f := flags.Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		value := shellQuote(f.Value.String())
		if name == "database-url" && value != "private" {
			value = "ADDRESS" // it may have a password
		}
		fmt.Fprintf(&words, " --%s %s", name, value)
	}
	return words.String()
}
