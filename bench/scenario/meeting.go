package scenario

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/bench/contest"
	"github.com/cuelight/cuelight/bench/result"
)

// alone is who a figure belongs to that has no contestant.
const alone = "floor"

// Meeting is where contestants meet: one server, one result.
type Meeting struct {
	*Stand
	Result *result.Result
	Say    func(format string, args ...any)

	// Apart starts a crew in a process of its own. A scenario that needs it
	// is skipped where it is nil.
	Apart func(ctx context.Context, c contest.Contestant, url string, o contest.Options) (contest.Crew, error)

	// Daemon is the command that serves a database as a daemon, with its files in
	// dir. A scenario that needs it is skipped where it is nil.
	Daemon func(ctx context.Context, dir, url string) (*exec.Cmd, error)

	// Scratch is where scenarios make their files, below directories of their own
	// that they remove. Empty is where temporary files go.
	Scratch string

	// Media has shared clips, if it is not empty.
	Media string

	absent map[string]bool // contestants that cannot be had here
}

// Heat is a contestant in a scenario.
type Heat struct {
	Scenario   Scenario
	Contestant contest.Contestant // nil where the scenario takes none
}

func (h Heat) name() string {
	if h.Contestant == nil {
		return alone
	}
	return h.Contestant.Name()
}

// Group is what belongs together: each round has every heat once, and the next
// begins with another one.
type Group struct {
	Rounds int
	Heats  []Heat
}

// Hold measures a group. What goes wrong in a heat is written down in the
// result, and the heat is left out of the rounds to come; the others go on. The
// error is one of the server, or that ctx is done.
func (m *Meeting) Hold(ctx context.Context, g Group) error {
	out := make([]bool, len(g.Heats))
	for round := range g.Rounds {
		for i := range order(round, len(g.Heats)) {
			if out[i] || m.absent[g.Heats[i].name()] {
				continue
			}
			err := m.heat(ctx, g.Heats[i], round)
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case err == nil:
				continue
			}
			out[i] = true
			m.note(g.Heats[i], round, err)
			if err := m.Stand.Check(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// order is that of n in a round.
func order(round, n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield((i + round) % n) {
				return
			}
		}
	}
}

// errNotHere: it cannot be measured with this contestant, or on this machine.
var errNotHere = errors.New("not measured")

// note writes down why a heat has no figure.
func (m *Meeting) note(h Heat, round int, err error) {
	reason := brief(err)
	if errors.Is(err, contest.ErrUnavailable) {
		if m.absent == nil {
			m.absent = make(map[string]bool)
		}
		m.absent[h.name()] = true // finding that out may take long
		m.Result.Skip(h.name(), reason)
		m.Say("skipped: %s: %s", h.name(), reason)
		return
	}
	what := h.Scenario.Names()[0] + "/" + h.name()
	if !errors.Is(err, errNotHere) {
		reason = fmt.Sprintf("error in round %d: %s", round+1, reason)
	}
	m.Result.Skip(what, reason)
	m.Say("%s: %s", what, reason)
}

// brief is an error in one line, and no more of it than a table can hold.
func brief(err error) string {
	const most = 300
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + " …"
	}
	return text
}

// heatWithin is how long a heat may take. It is for those who hang.
const heatWithin = 15 * time.Minute

var errTooLong = fmt.Errorf("it took longer than %v", heatWithin)

// heat gives a contestant its turn, in a database of its own.
func (m *Meeting) heat(ctx context.Context, h Heat, round int) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, heatWithin, errTooLong)
	defer cancel()
	var settings []string
	if c, ok := h.Scenario.(Configured); ok {
		settings = c.Settings()
	}
	db, err := m.Stand.Database(ctx, settings...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Drop(ctx)) }()
	if h.Contestant != nil {
		if err := h.Contestant.Setup(ctx, db.URL); err != nil {
			return err
		}
		m.Result.Settings[h.name()] = h.Contestant.Settings()
	}
	// Nobody inherits the dirty pages and the garbage of those before.
	if err := m.Stand.Checkpoint(ctx); err != nil {
		return err
	}
	runtime.GC()
	return h.Scenario.Measure(ctx, &Trial{
		Contestant: h.Contestant, Round: round, URL: db.URL, Meeting: m, name: h.name(),
	})
}

// Only keeps the heats whose scenarios have one of the words, and whose
// contestants have one of the names; no words, or no names, are all of them.
// Heats without a contestant stay whatever the names.
func (g Group) Only(words, names []string) Group {
	g.Heats = slices.DeleteFunc(slices.Clone(g.Heats), func(h Heat) bool {
		unwanted := len(words) > 0 && !slices.ContainsFunc(h.Scenario.Names(), func(n string) bool { return slices.Contains(words, n) })
		return unwanted || len(names) > 0 && h.Contestant != nil && !slices.Contains(names, h.name())
	})
	return g
}
