package store_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// exchange is the main step: a random worker with random slots, and reports of its own
// claims, of claims of others, and of claims that it lost long ago.
func (p *simulation) exchange() {
	n := p.model.queues
	w := p.anyWorker()
	in := engine.ExchangeRequest{
		Worker: w.id, FreeSlots: make([]int, n), ClaimFrom: make([]bool, n), PromoteDue: p.chance(40),
	}
	for i := range n {
		in.FreeSlots[i], in.ClaimFrom[i] = p.rng.IntN(3), p.chance(60)
	}
	if p.chance(20) {
		in.After = make([]engine.Position, n)
		t := p.anyTask()
		in.After[p.rng.IntN(n)] = engine.Position{Rank: -int32(t.priority), Turn: int64(p.rng.IntN(5)), Task: t.id}
	}
	if p.chance(5) {
		in.OnlyTasks = []store.ID{p.anyTask().id, p.anyTask().id}
	}
	for _, c := range p.someClaims(p.rng.IntN(6)) {
		in.Reports = append(in.Reports, p.report(c))
	}
	if len(in.Reports) > 0 && p.chance(10) {
		in.Reports = append(in.Reports, in.Reports[0])
	}
	if p.chance(5) {
		t := p.anyTask()
		in.Reports = append(in.Reports, engine.Report{Task: t.id, Token: store.ID{byte(p.step)}, Outcome: engine.Completed})
	}
	var lockedTask *modelTask
	if p.chance(10) {
		lockedTask = p.model.task(p.anyTask().id)
	}
	p.compareExchange(w, in, lockedTask)
}

// report returns a report of the claim with a random outcome.
func (p *simulation) report(c engine.Claim) engine.Report {
	r := engine.Report{
		Task: c.Task, Stage: c.Stage, Part: c.Part, Token: c.Token, Outcome: engine.Failed, Error: "work failed", Class: "error",
	}
	switch n := p.rng.IntN(100); {
	case n < 55 && p.model.divides[c.Stage] && c.Part == 0 && c.Parts == 0:
		return division(c, 1+p.rng.IntN(4))
	case n < 25 && c.Part == 0 && c.Parts > 0:
		return randomDivisionAgain(p.rng, c)
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
	// A worker knows the maximum number of attempts.
	r.Dead = r.Outcome == engine.Failed && (c.Attempt >= modelAttempts || p.chance(20))
	return r
}

// compareExchange makes the exchange in the model and in the store, while another
// transaction has locked the row of lockedTask, and compares the results.
func (p *simulation) compareExchange(w *modelWorker, in engine.ExchangeRequest, lockedTask *modelTask) {
	p.t.Helper()
	p.logStep("%s makes an exchange%s%s", w.name, p.describeRequest(in), p.describeLock(lockedTask))
	checkUnchanged := p.checkUnchangedRows()
	var got engine.ExchangeResult
	err := pgx.BeginFunc(p.t.Context(), p.pool, func(tx pgx.Tx) error {
		if lockedTask != nil {
			_, err := tx.Exec(p.t.Context(), "select from "+p.prefix+"tasks where id = $1 for update", lockedTask.id)
			p.must(err)
		}
		var err error
		got, err = p.Exchange(p.t.Context(), in)
		return err
	})
	p.must(err)
	want := p.model.exchange(in, lockedTask, p.readTurns)
	p.compareClaims(got.Claims, want.claims)
	p.compareIDs("stale reports", tokensOfStale(got.Stale), want.stale)
	p.compareIDs("locked reports", tokensOf(got.Locked), want.locked)
	if !slices.Equal(got.MoreReady, want.moreReady) || cmp.Compare(got.NextDue, 0) != want.nextDue {
		p.fatalf("MoreReady %v NextDue %v, want %v %v", got.MoreReady, got.NextDue, want.moreReady, want.nextDue)
	}
	checkUnchanged()
}

// readTurns gives the model the turns of all steps: which they are is not promised, but their order is that of the claims.
func (p *simulation) readTurns() {
	p.t.Helper()
	rows, err := p.pool.Query(p.t.Context(), "select task_id, stage, part, turn from "+p.prefix+"steps")
	p.must(err)
	var id store.ID
	var stage string
	var part int
	var turn int64
	_, err = pgx.ForEachRow(rows, []any{&id, &stage, &part, &turn}, func() error {
		t, i := p.model.task(id), slices.Index(p.model.stages, stage)
		if t == nil || part >= t.stages[i].units() {
			return fmt.Errorf("the step %d of %s of task %s is left", part, stage, id)
		}
		t.unit(i, part).turn = turn
		return nil
	})
	p.must(err)
}

// checkUnchangedRows reads all rows. The returned function checks that rows without a
// change were not written: a stale report changes nothing, not even the row's version.
func (p *simulation) checkUnchangedRows() func() {
	p.t.Helper()
	tasks, before, written := slices.Clone(p.model.tasks), p.rows(), p.rowVersions()
	return func() {
		p.t.Helper()
		after := p.rows()
		for i, version := range p.rowVersions() {
			if before[i] == after[i] && version != written[i] {
				p.fatalf("the row of %s was written without a change", tasks[i].name)
			}
		}
	}
}

// rows returns the tasks of the model as text, in the order of their ids.
func (p *simulation) rows() []string {
	var all []string
	for _, t := range p.model.tasks {
		row := ""
		for i := range t.stages {
			row += t.stages[i].describe() + "; "
		}
		all = append(all, row)
	}
	return all
}

// rowVersions returns the transactions that wrote the rows last.
func (p *simulation) rowVersions() []uint32 {
	p.t.Helper()
	rows, err := p.pool.Query(p.t.Context(), "select xmin from "+p.prefix+"tasks order by id")
	p.must(err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	p.must(err)
	return all
}

func (p *simulation) describeRequest(in engine.ExchangeRequest) string {
	var b strings.Builder
	fmt.Fprintf(&b, ", free %v, claim from %v, promote %v", in.FreeSlots, in.ClaimFrom, in.PromoteDue)
	for i, position := range in.After {
		if t := p.model.task(position.Task); t != nil {
			fmt.Fprintf(&b, ", queue %d after %s with turn %d", i, t.name, position.Turn)
		}
	}
	for _, id := range in.OnlyTasks {
		if t := p.model.task(id); t != nil {
			b.WriteString(", only " + t.name)
		}
	}
	for _, r := range in.Reports {
		name := "unknown"
		if t := p.model.task(r.Task); t != nil {
			name = t.name
		}
		fmt.Fprintf(&b, "\n       %s %d of %s is %s (dead %t, retry in %s), held %t", p.model.stages[r.Stage], r.Part, name, r.Outcome,
			r.Dead, r.RetryIn, p.holds(engine.Claim{Task: r.Task, Stage: r.Stage, Part: r.Part, Token: r.Token}))
	}
	return b.String()
}

func (p *simulation) describeLock(t *modelTask) string {
	if t == nil {
		return ""
	}
	return ", with " + t.name + " locked"
}

// compareClaims compares the claims, and stores their tokens in the model.
func (p *simulation) compareClaims(got []engine.Claim, want []modelPart) {
	p.t.Helper()
	var a, b []string
	for _, c := range got {
		a = append(a, fmt.Sprintf("%s %d of %s, attempt %d, of %d parts", p.model.stages[c.Stage], c.Part, c.Source, c.Attempt, c.Parts))
	}
	for _, c := range want {
		b = append(b,
			fmt.Sprintf("%s %d of %s, attempt %d, of %d parts", p.model.stages[c.stage], c.part, c.task.name,
				c.attempts, len(c.task.stages[c.stage].parts)))
	}
	slices.Sort(a)
	slices.Sort(b)
	if !slices.Equal(a, b) {
		p.fatalf("claims are\n  %s\nwant\n  %s", strings.Join(a, "\n  "), strings.Join(b, "\n  "))
	}
	for _, c := range got {
		if c.Token.IsZero() || p.tokens[c.Token] {
			p.fatalf("token %s was generated twice", c.Token)
		}
		p.tokens[c.Token] = true
		p.model.task(c.Task).unit(c.Stage, c.Part).token = c.Token
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

// completeAll completes all tasks with one worker.
func (p *simulation) completeAll() {
	n := p.model.queues
	w := p.register("last")
	in := engine.ExchangeRequest{
		Worker: w.id, FreeSlots: slices.Repeat([]int{100}, n), ClaimFrom: slices.Repeat([]bool{true}, n),
		PromoteDue: true,
	}
	for p.step++; slices.ContainsFunc(p.model.tasks, p.model.isUnfinished); p.step++ {
		if p.step > *stepsFlag+20*n {
			p.fatalf("tasks are not finished after %d steps", p.step)
		}
		p.makeDue()
		in.Reports = nil
		for _, c := range p.claims {
			if p.holds(c) {
				in.Reports = append(in.Reports, completed(c))
			}
		}
		p.compareExchange(w, in, nil)
		p.compare()
	}
}
