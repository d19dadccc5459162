package store_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// turn is the move that matters: any worker with any slots, and reports of its
// own claims, of others' and of those it has long lost.
func (p *play) turn() {
	n := len(p.m.stages)
	w := p.someone()
	in := engine.ExchangeRequest{Worker: w.id, FreeSlots: make([]int, n), ClaimFrom: make([]bool, n), PromoteDue: make([]bool, n)}
	for i := range n {
		in.FreeSlots[i], in.ClaimFrom[i], in.PromoteDue[i] = p.rng.IntN(3), p.chance(60), p.chance(40)
	}
	if p.chance(20) {
		in.After = make([]engine.Position, n)
		t := p.someTask()
		in.After[p.rng.IntN(n)] = engine.Position{Priority: t.priority, Task: t.id}
	}
	if p.chance(5) {
		in.OnlyTasks = []store.ID{p.someTask().id, p.someTask().id}
	}
	for _, c := range p.known(p.rng.IntN(6)) {
		in.Reports = append(in.Reports, p.report(c))
	}
	if len(in.Reports) > 0 && p.chance(10) {
		in.Reports = append(in.Reports, in.Reports[0])
	}
	if p.chance(5) {
		t := p.someTask()
		in.Reports = append(in.Reports, engine.Report{Task: t.id, Token: store.ID{byte(p.step)}, Outcome: engine.Completed})
	}
	var foreign *modelTask
	if p.chance(10) {
		foreign = p.m.task(p.someTask().id)
	}
	p.makeTurn(w, in, foreign)
}

// report ends a claim in any way.
func (p *play) report(c engine.Claim) engine.Report {
	r := engine.Report{Task: c.Task, Stage: c.Stage, Token: c.Token, Outcome: engine.Failed, Error: "no luck", Class: "error"}
	switch n := p.rng.IntN(100); {
	case n < 60:
		r = completed(c)
		if p.chance(70) {
			r.Result = json.RawMessage(fmt.Sprintf(`{"step": %d}`, p.step))
		}
	case n < 75:
		r.Outcome, r.Error, r.Class = engine.Released, "", ""
		if n < 67 {
			r.RetryIn = time.Hour
		}
	case n < 85:
		r.RetryIn = time.Hour
	}
	// Whoever works on a stage knows how often that may be tried.
	r.Dead = r.Outcome == engine.Failed && (c.Attempt >= modelAttempts || p.chance(20))
	return r
}

// makeTurn makes the turn in the model and in the store, while somebody else
// has the row of foreign locked, and compares.
func (p *play) makeTurn(w *modelWorker, in engine.ExchangeRequest, foreign *modelTask) {
	p.t.Helper()
	p.say("%s makes a turn%s%s", w.name, p.tell(in), p.lock(foreign))
	untouched := p.untouched()
	want := p.m.turn(in, foreign)
	var got engine.ExchangeResult
	err := pgx.BeginFunc(p.t.Context(), p.pool, func(tx pgx.Tx) error {
		if foreign != nil {
			_, err := tx.Exec(p.t.Context(), "select from "+p.prefix+"tasks where id = $1 for update", foreign.id)
			p.must(err)
		}
		var err error
		got, err = p.Exchange(p.t.Context(), in)
		return err
	})
	p.must(err)
	p.learn(got.Claims, want.claims)
	p.same("stale reports", tokensOfStale(got.Stale), want.stale)
	p.same("locked reports", tokensOf(got.Locked), want.locked)
	if !slices.Equal(got.MoreReady, want.left) || !slices.Equal(got.NewlyReady, want.yielded) || !slices.Equal(signs(got.NextDue), want.next) {
		p.fatalf("left %v yielded %v next %v, want %v %v %v", got.MoreReady, got.NewlyReady, got.NextDue, want.left, want.yielded, want.next)
	}
	untouched()
}

// untouched remembers all rows. The function it returns makes sure that those
// of which nothing changed were not written anew: a report that comes too late
// changes nothing, not even that.
func (p *play) untouched() func() {
	p.t.Helper()
	tasks, before, written := slices.Clone(p.m.tasks), p.rows(), p.versions()
	return func() {
		p.t.Helper()
		after := p.rows()
		for i, now := range p.versions() {
			if before[i] == after[i] && now != written[i] {
				p.fatalf("the row of %s was written anew although nothing of it changed", tasks[i].name)
			}
		}
	}
}

// rows are the tasks as they should be, in the order of their ids.
func (p *play) rows() []string {
	var all []string
	for _, t := range p.m.tasks {
		row := ""
		for i := range t.stages {
			row += t.stages[i].describe() + "; "
		}
		all = append(all, row)
	}
	return all
}

// versions are the transactions that wrote the rows of the tasks last.
func (p *play) versions() []uint32 {
	p.t.Helper()
	rows, err := p.pool.Query(p.t.Context(), "select xmin from "+p.prefix+"tasks order by id")
	p.must(err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	p.must(err)
	return all
}

func (p *play) tell(in engine.ExchangeRequest) string {
	var b strings.Builder
	fmt.Fprintf(&b, ", free %v, look %v, mature %v", in.FreeSlots, in.ClaimFrom, in.PromoteDue)
	for i, place := range in.After {
		if t := p.m.task(place.Task); t != nil {
			fmt.Fprintf(&b, ", %s after %s", p.m.stages[i], t.name)
		}
	}
	for _, id := range in.OnlyTasks {
		if t := p.m.task(id); t != nil {
			b.WriteString(", only " + t.name)
		}
	}
	for _, r := range in.Reports {
		name := "nothing"
		if t := p.m.task(r.Task); t != nil {
			name = t.name
		}
		fmt.Fprintf(&b, "\n       %s of %s is %s (dead %t, again in %s), held %t", p.m.stages[r.Stage], name, r.Outcome,
			r.Dead, r.RetryIn, p.holds(engine.Claim{Task: r.Task, Stage: r.Stage, Token: r.Token}))
	}
	return b.String()
}

func (p *play) lock(t *modelTask) string {
	if t == nil {
		return ""
	}
	return ", with " + t.name + " locked"
}

// learn compares the claims and keeps the tokens that were drawn for them.
func (p *play) learn(got []engine.Claim, want []modelClaim) {
	p.t.Helper()
	var a, b []string
	for _, c := range got {
		a = append(a, fmt.Sprintf("%s of %s, attempt %d", p.m.stages[c.Stage], c.Source, c.Attempt))
	}
	for _, c := range want {
		b = append(b, fmt.Sprintf("%s of %s, attempt %d", p.m.stages[c.stage], c.task.name, c.task.stages[c.stage].attempts))
	}
	slices.Sort(a)
	slices.Sort(b)
	if !slices.Equal(a, b) {
		p.fatalf("claims are\n  %s\nwant\n  %s", strings.Join(a, "\n  "), strings.Join(b, "\n  "))
	}
	for _, c := range got {
		if c.Token.IsZero() || p.tokens[c.Token] {
			p.fatalf("token %s was drawn before", c.Token)
		}
		p.tokens[c.Token] = true
		p.m.task(c.Task).stages[c.Stage].token = c.Token
		p.claims = append(p.claims, c)
	}
}

func tokensOf(reports []engine.Report) []store.ID {
	var all []store.ID
	for _, r := range reports {
		all = append(all, r.Token)
	}
	return all
}

func tokensOfStale(reports []engine.StaleReport) []store.ID {
	var all []store.ID
	for _, r := range reports {
		all = append(all, r.Token)
	}
	return all
}

// drain lets one worker finish all there is.
func (p *play) drain() {
	n := len(p.m.stages)
	w := p.join("last")
	in := engine.ExchangeRequest{Worker: w.id, FreeSlots: slices.Repeat([]int{100}, n), ClaimFrom: slices.Repeat([]bool{true}, n), PromoteDue: slices.Repeat([]bool{true}, n)}
	for p.step++; slices.ContainsFunc(p.m.tasks, p.m.open); p.step++ {
		if p.step > *stepsFlag+20*n {
			p.fatalf("there is no end to it")
		}
		p.passTime()
		in.Reports = nil
		for _, c := range p.claims {
			if p.holds(c) {
				in.Reports = append(in.Reports, completed(c))
			}
		}
		p.makeTurn(w, in, nil)
		p.compare()
	}
}
