package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
)

// Session measures runs on one server and collects one result.
type Session struct {
	*Server
	Result *result.Result
	Logf   func(format string, args ...any)
	Slots  int // per stage

	// StartSubprocess starts workers in another process. If it is nil, scenarios that need it
	// are skipped.
	StartSubprocess func(ctx context.Context, s harness.System, url string, o harness.Options) (harness.Workers, error)

	// DaemonCommand returns the command of a daemon on a database, with its files in dir. If it
	// is nil, scenarios that need it are skipped.
	DaemonCommand func(ctx context.Context, dir, url string) (*exec.Cmd, error)

	// ScratchDir is where scenarios create and remove their files. Default: os.TempDir.
	ScratchDir string

	// MediaDir has shared clips. Default: none.
	MediaDir string

	unavailable map[string]bool // systems
}

// Run is a scenario with a system.
type Run struct {
	Scenario Scenario
	System   harness.System // empty for scenarios without a system
}

// SystemName returns the name under which the figures are recorded: "floor" without a system.
func (r Run) SystemName() string { return cmp.Or(r.System.Name, "floor") }

// Group is runs that are compared: each round has all of them, and starts with another one.
type Group struct {
	Rounds int
	Runs   []Run
}

// Select keeps the runs whose scenario has one of the names and whose system is one of
// those. No names, or no systems, select all; runs without a system always stay.
func (g Group) Select(names, systems []string) Group {
	g.Runs = slices.DeleteFunc(slices.Clone(g.Runs), func(r Run) bool {
		isNamed := func(name string) bool { return slices.Contains(names, name) }
		return len(names) > 0 && !slices.ContainsFunc(r.Scenario.Names, isNamed) ||
			len(systems) > 0 && r.System.Name != "" && !slices.Contains(systems, r.SystemName())
	})
	return g
}

// Run measures a group. It adds the error of a run to the result and omits that run from later
// rounds; the others continue. It returns an error if the server fails or ctx is done.
func (s *Session) Run(ctx context.Context, g Group) error {
	failed := make([]bool, len(g.Runs))
	for round := range g.Rounds {
		for _, i := range rotation(round, len(g.Runs)) {
			r := g.Runs[i]
			if failed[i] || s.unavailable[r.SystemName()] {
				continue
			}
			err := s.measure(ctx, r, round)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err == nil {
				continue
			}
			failed[i] = true
			s.recordError(r, round, err)
			if err := s.Server.Check(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// rotation returns the order of n runs in a round.
func rotation(round, n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = (i + round) % n
	}
	return order
}

// recordError adds the reason why a run has no figure.
func (s *Session) recordError(r Run, round int, err error) {
	reason := brief(err)
	if errors.Is(err, harness.ErrUnavailable) {
		if s.unavailable == nil {
			s.unavailable = make(map[string]bool)
		}
		s.unavailable[r.SystemName()] = true // another attempt may take long
		s.Result.Skip(r.SystemName(), reason)
		s.Logf("skipped: %s: %s", r.SystemName(), reason)
		return
	}
	if !errors.Is(err, errNotMeasured) {
		reason = fmt.Sprintf("error in round %d: %s", round+1, reason)
	}
	key := r.Scenario.Names[0] + "/" + r.SystemName()
	s.Result.Skip(key, reason)
	s.Logf("%s: %s", key, reason)
}

// brief returns an error in one line that fits into a table.
func brief(err error) string {
	const limit = 300
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + " …"
	}
	return text
}

// runTimeout ends runs that hang.
const runTimeout = 15 * time.Minute

// measure measures a run in a database of its own.
func (s *Session) measure(ctx context.Context, r Run, round int) (err error) {
	timeout := cmp.Or(r.Scenario.Timeout, runTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it took longer than %v", timeout))
	defer cancel()
	db, err := s.Server.CreateDatabase(ctx, r.Scenario.Settings...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Drop(ctx)) }()
	if r.System.Setup != nil {
		if err := r.System.Setup(ctx, db.URL); err != nil {
			return err
		}
		s.Result.Settings[r.SystemName()] = r.System.Settings
	}
	// A run must not pay for the dirty pages and the garbage of those before it.
	if err := s.Server.Checkpoint(ctx); err != nil {
		return err
	}
	runtime.GC()
	return r.Scenario.Measure(ctx, &Trial{
		System: r.System, Round: round, URL: db.URL, Session: s, systemName: r.SystemName(),
	})
}
