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

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
)

// alone is who a figure belongs to that has no contestant.
const alone = "floor"

// Meeting is where contestants meet: one server, one result.
type Session struct {
	*Server
	Result *result.Result
	Logf   func(format string, args ...any)

	// Apart starts a crew in a process of its own. A scenario that needs it
	// is skipped where it is nil.
	StartSubprocess func(ctx context.Context, c harness.System, url string, o harness.Options) (harness.Workers, error)

	// Daemon is the command that serves a database as a daemon, with its files in
	// dir. A scenario that needs it is skipped where it is nil.
	DaemonCommand func(ctx context.Context, dir, url string) (*exec.Cmd, error)

	// Scratch is where scenarios make their files, below directories of their own
	// that they remove. Empty is where temporary files go.
	ScratchDir string

	// Media has shared clips, if it is not empty.
	MediaDir string

	absent map[string]bool // contestants that cannot be had here
}

// Heat is a contestant in a scenario.
type Run struct {
	Scenario Scenario
	System   harness.System // nil where the scenario takes none
}

func (h Run) name() string {
	if h.System == nil {
		return alone
	}
	return h.System.Name()
}

// Group is what belongs together: each round has every heat once, and the next
// begins with another one.
type Group struct {
	Rounds int
	Runs   []Run
}

// Hold measures a group. What goes wrong in a heat is written down in the
// result, and the heat is left out of the rounds to come; the others go on. The
// error is one of the server, or that ctx is done.
func (m *Session) Run(ctx context.Context, g Group) error {
	out := make([]bool, len(g.Runs))
	for round := range g.Rounds {
		for i := range rotation(round, len(g.Runs)) {
			if out[i] || m.absent[g.Runs[i].name()] {
				continue
			}
			err := m.heat(ctx, g.Runs[i], round)
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case err == nil:
				continue
			}
			out[i] = true
			m.note(g.Runs[i], round, err)
			if err := m.Server.Check(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// order is that of n in a round.
func rotation(round, n int) iter.Seq[int] {
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
func (m *Session) note(h Run, round int, err error) {
	reason := brief(err)
	if errors.Is(err, harness.ErrUnavailable) {
		if m.absent == nil {
			m.absent = make(map[string]bool)
		}
		m.absent[h.name()] = true // finding that out may take long
		m.Result.Skip(h.name(), reason)
		m.Logf("skipped: %s: %s", h.name(), reason)
		return
	}
	what := h.Scenario.Names()[0] + "/" + h.name()
	if !errors.Is(err, errNotHere) {
		reason = fmt.Sprintf("error in round %d: %s", round+1, reason)
	}
	m.Result.Skip(what, reason)
	m.Logf("%s: %s", what, reason)
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
func (m *Session) heat(ctx context.Context, h Run, round int) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, heatWithin, errTooLong)
	defer cancel()
	var settings []string
	if c, ok := h.Scenario.(Configured); ok {
		settings = c.DatabaseSettings()
	}
	db, err := m.Server.Database(ctx, settings...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Drop(ctx)) }()
	if h.System != nil {
		if err := h.System.Setup(ctx, db.URL); err != nil {
			return err
		}
		m.Result.Settings[h.name()] = h.System.Settings()
	}
	// Nobody inherits the dirty pages and the garbage of those before.
	if err := m.Server.Checkpoint(ctx); err != nil {
		return err
	}
	runtime.GC()
	return h.Scenario.Measure(ctx, &Trial{
		System: h.System, Round: round, URL: db.URL, Session: m, systemName: h.name(),
	})
}

// Only keeps the heats whose scenarios have one of the words, and whose
// contestants have one of the names; no words, or no names, are all of them.
// Heats without a contestant stay whatever the names.
func (g Group) Only(words, names []string) Group {
	g.Runs = slices.DeleteFunc(slices.Clone(g.Runs), func(h Run) bool {
		unwanted := len(words) > 0 && !slices.ContainsFunc(h.Scenario.Names(), func(n string) bool { return slices.Contains(words, n) })
		return unwanted || len(names) > 0 && h.System != nil && !slices.Contains(names, h.name())
	})
	return g
}
