// Package ops performs the actions of operators: retry, cancel, pause, drain and so on.
//
// The command line, the HTTP API and the dashboard call the same [Actions] and
// [WebhookActions]. Each method checks the operator's scope and commits the action and its entry in the audit log in
// one transaction: neither exists without the other. An action that fails leaves no
// entry.
//
// [FollowEvents] and [TaskFollower] read events for a client, however slowly it takes
// them. The package neither decides who an operator is (see package access) nor formats
// anything for display.
package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/profiles"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/internal/upload"
	"github.com/cuelight/cuelight/store"
)

// Actions are what an operator can do.
type Actions struct {
	Store *store.Store

	// Authorize returns the name of the operator that ctx belongs to, for the audit
	// log, or an error if the operator lacks the scope.
	Authorize func(ctx context.Context, need access.Scope) (actor string, err error)

	// Prepare checks submissions and completes them in place, in the transaction of the
	// action, such as by profiles.Prepare. Default: they are submitted as they are.
	Prepare func(ctx context.Context, in *store.Store, subs []store.Submission) error

	// MaxPerMinute limits the submissions for each user, in the last minute. A repeated one counts, too. Default 0: no limit.
	MaxPerMinute int
}

// RateError is the error of a submission that would exceed Actions.MaxPerMinute.
type RateError struct {
	User  string
	Limit int
	Wait  time.Duration // until it would not; 0 if it alone exceeds the limit
}

// Error says what to do.
func (e *RateError) Error() string {
	if e.Wait == 0 {
		return fmt.Sprintf("user %q can submit at most %d tasks per minute; submit fewer at once", e.User, e.Limit)
	}
	return fmt.Sprintf("user %q has submitted %d tasks in the last minute, the limit; try again in %.0f s",
		e.User, e.Limit, math.Ceil(e.Wait.Seconds()))
}

// checkRate returns a RateError if submissions exceed the limit of a user.
func (a Actions) checkRate(ctx context.Context, in *store.Store, subs []store.Submission) error {
	if a.MaxPerMinute <= 0 {
		return nil
	}
	byUser := make(map[string]int)
	for _, s := range subs {
		byUser[s.UserID]++
	}
	delete(byUser, "")
	for _, user := range slices.Sorted(maps.Keys(byUser)) { // in one order, so that locks do not end in a deadlock
		n := byUser[user]
		if n > a.MaxPerMinute {
			return &RateError{User: user, Limit: a.MaxPerMinute}
		}
		wait, err := SubmissionDelay(ctx, in, user, n, a.MaxPerMinute)
		if err != nil {
			return err
		}
		if wait > 0 {
			return &RateError{user, a.MaxPerMinute, wait}
		}
	}
	return nil
}

func (a Actions) prepare(ctx context.Context, in *store.Store, subs ...store.Submission) ([]store.Submission, error) {
	if err := a.checkRate(ctx, in, subs); err != nil || a.Prepare == nil {
		return subs, err
	}
	subs = slices.Clone(subs) // the transaction may be tried again
	return subs, a.Prepare(ctx, in, subs)
}

// details are the parameters of an action in the audit log.
type details map[string]any

// Submit submits tasks. Tasks that existed already are not audited.
func (a Actions) Submit(ctx context.Context, subs ...store.Submission) (receipts []store.Receipt, err error) {
	err = a.perform(ctx, access.Submit, "submit", func(in *store.Store, _ string) (string, details, error) {
		prepared, err := a.prepare(ctx, in, subs...)
		if err == nil {
			receipts, err = in.SubmitAll(ctx, prepared)
		}
		if err != nil {
			return "", nil, err
		}
		var added []int
		for i, r := range receipts {
			if !r.Existed {
				added = append(added, i)
			}
		}
		switch len(added) {
		case 0:
			return "", nil, errNothingDone
		case 1:
			i := added[0]
			return receipts[i].ID.String(), details{"source": redact.Source(subs[i].Source)}, nil
		}
		first, last := receipts[added[0]].ID, receipts[added[len(added)-1]].ID
		return "", details{"tasks": len(added), "first": first, "last": last}, nil
	})
	return receipts, err
}

// SubmitUpload submits an uploaded file. The entry has the name that its sender gave it,
// because the path of an upload is random. A task that existed already is not audited.
func (a Actions) SubmitUpload(ctx context.Context, u upload.Upload, sub store.Submission) (r store.Receipt, err error) {
	err = a.perform(ctx, access.Submit, "submit", func(in *store.Store, _ string) (string, details, error) {
		prepared, err := a.prepare(ctx, in, sub)
		if err == nil {
			r, err = in.Submit(ctx, prepared[0])
		}
		if err == nil && r.Existed {
			err = errNothingDone
		}
		return r.ID.String(), details{"upload": u.ID, "name": u.Name, "bytes": u.Size}, err
	})
	return r, err
}

// Override replaces tasks, at least one, by a new one.
func (a Actions) Override(ctx context.Context, old []store.ID, by store.Submission) (r store.Receipt, err error) {
	err = a.perform(ctx, access.Admin, "override", func(in *store.Store, _ string) (string, details, error) {
		prepared, err := a.prepare(ctx, in, by)
		if err == nil {
			r, err = in.Override(ctx, old, prepared[0])
		}
		return old[0].String(), details{"by": r.ID, "tasks": old, "source": redact.Source(by.Source)}, err
	})
	return r, err
}

// RetryOptions say what to retry of a task. The zero value retries what failed.
type RetryOptions struct {
	// From is the stage to retry, with all that depend on it.
	From string `json:"from,omitempty"`
	// Fresh keeps no completed parts: see [store.Store.RetryFresh].
	Fresh bool `json:"fresh,omitempty"`
	// Renditions are the heights that transcode makes again; it keeps the others. From is transcode then.
	Renditions []int `json:"renditions,omitempty"`
}

// Retry retries a task. Of renditions that cannot be selected the error is a [*video.ParamsError].
func (a Actions) Retry(ctx context.Context, task store.ID, o RetryOptions) error {
	retry := (*store.Store).Retry
	if o.Fresh || len(o.Renditions) > 0 {
		retry = (*store.Store).RetryFresh // parts of the whole ladder are of no use
	}
	d := details{}
	if o.Fresh {
		d["fresh"] = true
	}
	return a.perform(ctx, access.Admin, "retry", func(in *store.Store, _ string) (string, details, error) {
		from, err := profiles.New(in).SelectRenditions(ctx, task, o.From, o.Renditions)
		if err != nil {
			return "", nil, err
		}
		if from != "" {
			d["from"] = from
		}
		if len(o.Renditions) > 0 {
			d["renditions"] = o.Renditions
		}
		return task.String(), d, retry(in, ctx, task, from)
	})
}

// RetryAll retries the tasks that a filter selects, in batches that are audited each.
// Filter is for the audit log: it must not hold secrets.
func (a Actions) RetryAll(
	ctx context.Context, f store.Filter, from string, filter any, o store.RetryAllOptions,
) (store.RetryAllResult, error) {
	if err := a.auditBatches(ctx, "retry_all", details{"filter": filter, "from": from}, &o); err != nil {
		return store.RetryAllResult{}, err
	}
	return a.Store.RetryAll(ctx, f, from, o)
}

// RetryDead retries the dead stages that a filter selects, in batches that are audited
// each.
func (a Actions) RetryDead(
	ctx context.Context, f report.DeadFilter, o store.RetryAllOptions,
) (store.RetryAllResult, error) {
	written := f
	written.Source = redact.Filter(f.Source)
	if err := a.auditBatches(ctx, "retry_dead", details{"filter": written}, &o); err != nil {
		return store.RetryAllResult{}, err
	}
	tasks, err := report.New(a.Store.DB(), a.Store.Graph()).FindDead(ctx, f)
	if err != nil {
		return store.RetryAllResult{}, err
	}
	return a.Store.RetryDead(ctx, tasks, o)
}

// auditBatches authorizes an action that is done in several transactions and makes each
// write an entry.
func (a Actions) auditBatches(ctx context.Context, action string, d details, o *store.RetryAllOptions) error {
	actor, err := a.Authorize(ctx, access.Admin)
	o.Record = func(ctx context.Context, in *store.Store, tasks int) error {
		d["tasks"] = tasks
		return record(ctx, in, actor, action, "", d)
	}
	return err
}

// Cancel cancels a task.
func (a Actions) Cancel(ctx context.Context, task store.ID) error {
	return a.perform(ctx, access.Admin, "cancel", func(in *store.Store, _ string) (string, details, error) {
		return task.String(), nil, in.Cancel(ctx, task)
	})
}

// Delete deletes a task, and returns it. By is the operator.
func (a Actions) Delete(ctx context.Context, task store.ID, o store.DeleteOptions) (deleted store.DeletedTask, err error) {
	d := details{}
	if o.KeepPublished {
		d["keep_published"] = true
	}
	if o.Purge {
		d["purge"] = true
	}
	err = a.perform(ctx, access.Admin, "delete", func(in *store.Store, actor string) (string, details, error) {
		o.By = actor
		err := in.Delete(ctx, task, o)
		if err == nil {
			deleted, err = in.GetDeleted(ctx, task)
		}
		return task.String(), d, err
	})
	return deleted, err
}

// Undelete restores a deleted task. A video whose published files were removed is published again.
func (a Actions) Undelete(ctx context.Context, task store.ID) error {
	return a.perform(ctx, access.Admin, "undelete", func(in *store.Store, _ string) (string, details, error) {
		deleted, err := in.GetDeleted(ctx, task)
		if err != nil {
			return "", nil, err
		}
		from := ""
		if !deleted.KeepPublished {
			from = publishStage
		}
		return task.String(), nil, in.Undelete(ctx, task, from)
	})
}

// publishStage is the stage of the video pipeline that Undelete repeats.
const publishStage = "publish"

// Pause stops workers from claiming a stage, on a host, or anything.
func (a Actions) Pause(ctx context.Context, p store.Pause) error {
	return a.perform(ctx, access.Admin, "pause", func(in *store.Store, actor string) (string, details, error) {
		p.By = actor
		return PauseScope(p), nil, in.Pause(ctx, p)
	})
}

// Resume ends a pause. It returns store.ErrNotFound if there is no such pause.
func (a Actions) Resume(ctx context.Context, p store.Pause) error {
	return a.perform(ctx, access.Admin, "resume", func(in *store.Store, _ string) (string, details, error) {
		found, err := in.Resume(ctx, p)
		if err == nil && !found {
			err = fmt.Errorf("%w: %s is not paused", store.ErrNotFound, PauseScope(p))
		}
		return PauseScope(p), nil, err
	})
}

// PauseScope says what a pause stops.
func PauseScope(p store.Pause) string {
	scope := "everything"
	if p.Stage != "" {
		scope = "stage " + p.Stage
	}
	if p.Host != "" {
		scope += " on host " + p.Host
	}
	return scope
}

// DrainWorker makes a worker finish its work and stop.
func (a Actions) DrainWorker(ctx context.Context, worker store.ID) error {
	return a.perform(ctx, access.Admin, "drain", func(in *store.Store, _ string) (string, details, error) {
		return worker.String(), nil, in.DrainWorker(ctx, worker)
	})
}

// errNothingDone makes perform commit without an entry.
var errNothingDone = errors.New("nothing done")

// perform authorizes an action, runs it and writes its entry.
func (a Actions) perform(
	ctx context.Context, need access.Scope, action string,
	do func(in *store.Store, actor string) (target string, d details, err error),
) error {
	actor, err := a.Authorize(ctx, need)
	if err != nil {
		return err
	}
	return a.Store.InTx(ctx, func(in *store.Store) error {
		target, d, err := do(in, actor)
		switch {
		case err == errNothingDone:
			return nil
		case err != nil:
			return err
		}
		return record(ctx, in, actor, action, target, d)
	})
}

// record writes an entry of the audit log.
func record(ctx context.Context, in *store.Store, actor, action, target string, d details) (err error) {
	e := operators.AuditEntry{Actor: actor, Action: action, Target: target}
	if len(d) > 0 {
		if e.Detail, err = json.Marshal(d); err != nil {
			return err
		}
	}
	return operators.WriteAudit(ctx, in.DB(), e)
}
