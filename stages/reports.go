package stages

import (
	"errors"
	"slices"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// reports are the outcomes that the database has not confirmed. The dispatcher owns them.
type reports struct {
	pending []finished
	spare   []finished // the buffer of the list before, used again
}

func (r *reports) add(f finished) { r.pending = append(r.pending, f) }

func (r *reports) empty() bool { return len(r.pending) == 0 }

func (r *reports) contains(token store.ID) bool {
	return slices.ContainsFunc(r.pending, func(f finished) bool { return f.report.Token == token })
}

// due returns the reports to send now: all but those whose rows were locked a moment ago, or whose
// files are being checked.
func (r *reports) due() []engine.Report {
	due := make([]engine.Report, 0, len(r.pending))
	now := time.Now()
	for i := range r.pending {
		if !now.Before(r.pending[i].notBefore) {
			due = append(due, r.pending[i].report)
		}
	}
	return due
}

// earliest returns the time when the next report is due, if that is before t.
func (r *reports) earliest(t time.Time) time.Time {
	for i := range r.pending {
		if at := r.pending[i].notBefore; at.Before(t) {
			t = at
		}
	}
	return t
}

// takeEach removes the pending reports and calls handle for each, which may add it again.
func (r *reports) takeEach(handle func(finished)) {
	all := r.pending
	r.pending = r.spare[:0]
	for _, f := range all {
		handle(f)
	}
	clear(all)
	r.spare = all
}

// applyReports handles the database's answer to the reports of an exchange. Reports whose
// rows were locked are sent again: after a millisecond or two, the time of another
// process' exchange, then less and less often.
func (d *dispatcher) applyReports(r engine.ExchangeRequest, out engine.ExchangeResult) {
	const applied, stale, cancelled, locked, refused, checking = 1, 2, 3, 4, 5, 6
	answer := make(map[store.ID]int, len(r.Reports))
	for _, report := range r.Reports {
		answer[report.Token] = applied
	}
	for _, report := range out.Stale {
		answer[report.Token] = stale
		if report.Cancelled {
			answer[report.Token] = cancelled
		}
	}
	for _, report := range out.Locked {
		answer[report.Token] = locked
	}
	recorded := make(map[store.ID]engine.Report, len(out.Refused))
	for _, report := range out.Refused {
		answer[report.Token], recorded[report.Token] = refused, report
	}
	pauses := make(map[store.ID]time.Duration, len(out.Checking))
	for _, report := range out.Checking {
		answer[report.Token], pauses[report.Token] = checking, report.Pause
	}
	d.reports.takeEach(func(f finished) {
		switch answer[f.report.Token] {
		case applied:
			d.endReported(f)
		case refused:
			f.recordRefusal(recorded[f.report.Token])
			d.endReported(f)
		case stale:
			d.dropReport(f, ErrLeaseLost)
		case cancelled:
			d.dropReport(f, ErrCancelled)
		case locked:
			f.notBefore = time.Now().Add(jitter(3 * time.Millisecond / 2 << min(f.tries, 9)))
			f.tries++
			d.reports.add(f)
		case checking:
			f.notBefore = time.Now().Add(pauses[f.report.Token])
			d.reports.add(f)
		default: // not in this exchange
			d.reports.add(f)
		}
	})
}

// recordRefusal makes a failed attempt of one whose result was refused.
func (f *finished) recordRefusal(recorded engine.Report) {
	f.report, f.kind, f.err = recorded, AttemptFailed, errors.New(recorded.Error)
	if recorded.Dead {
		f.kind = StageDead
	}
}

// dropReport ends an attempt whose claim was lost before its outcome was reported.
func (d *dispatcher) dropReport(f finished, why error) {
	d.p.attempts.remove(f.claim.Token)
	f.err = why
	d.p.observeEnd(f, ClaimRevoked)
}

// endReported ends an attempt whose outcome the database has recorded.
func (d *dispatcher) endReported(f finished) {
	d.p.attempts.remove(f.claim.Token)
	d.p.observeEnd(f, f.kind)
	if f.report.RetryIn != 0 {
		d.waiting.Add(time.Now().Add(f.report.RetryIn))
	}
}

// report queues the outcome of an attempt, unless the claim is lost.
func (d *dispatcher) report(f finished) {
	if f.revoked {
		d.p.attempts.remove(f.claim.Token)
		d.p.observeEnd(f, ClaimRevoked)
		return
	}
	d.reports.add(f)
}
