package main

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/cuelight/cuelight/internal/attached"
	"github.com/cuelight/cuelight/internal/inbox"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

const day = 24 * time.Hour

// retention is a flag value for how long something is kept: 30d, 12h, 0 for ever.
type retention time.Duration

func (r *retention) Type() string { return "time" }

func (r *retention) String() string {
	if d := time.Duration(*r); d%day == 0 && d != 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	} else if d != 0 {
		return d.String()
	}
	return "0"
}

// Set parses a number of days, or what [time.ParseDuration] does. Negative is for ever, as in earlier versions.
func (r *retention) Set(s string) error {
	d, err := time.ParseDuration(s)
	if number, ok := strings.CutSuffix(s, "d"); ok {
		var days float64
		days, err = strconv.ParseFloat(number, 64)
		d = time.Duration(days * float64(day))
		if !(days <= maxRetentionDays) {
			err = errors.New("too long")
		}
	}
	if err != nil {
		return errors.New("it must be a time such as 30d or 12h, or 0 for ever")
	}
	*r = retention(max(d, 0))
	return nil
}

const (
	// maxRetentionDays is a century.
	maxRetentionDays = 36500
	// forEver is for options that have no other value for it.
	forEver = maxRetentionDays * day
)

// orForEver returns an option whose default is 0, and which is negative for ever.
func (r retention) orForEver() time.Duration { return cmp.Or(time.Duration(r), -1) }

// retentions are the flags of what a daemon deletes.
type retentions struct {
	events, deleted, finished, dead, workers, audit, deliveries, deadDeliveries retention
}

func addRetentionFlags(f *pflag.FlagSet) *retentions {
	r := &retentions{
		events: retention(7 * day), deleted: retention(30 * day), workers: retention(90 * day), audit: retention(730 * day),
		deliveries: retention(7 * day), deadDeliveries: retention(30 * day),
	}
	f.Var(&r.events, "keep-events", "how long events are kept; 0 for ever")
	f.Var(&r.deleted, "keep-deleted", "how long deleted videos can be restored; 0 for ever")
	f.Var(&r.finished, "keep-finished", "how long completed and cancelled videos stay in lists; 0 for ever")
	f.Var(&r.dead, "keep-dead", "how long dead videos stay in lists; 0 for ever")
	f.Var(&r.workers, "keep-workers", "how long stopped workers stay in lists and history; 0 for ever")
	f.Var(&r.audit, "keep-audit", "how long entries of the audit log are kept; 0 for ever")
	f.Var(&r.deliveries, "keep-deliveries", "how long finished webhook deliveries are kept; 0 for ever")
	f.Var(&r.deadDeliveries, "keep-dead-deliveries", "how long dead webhook deliveries can be sent again; 0 for ever")
	return r
}

// options returns what the daemon deletes, for its Runner.
func (r *retentions) options(config video.Config, st *store.Store) *stages.Retention {
	o := config.Retention(st.Result)
	o.KeepDeleted, o.RememberPrefix = r.deleted.orForEver(), inbox.RequestPrefix
	o.KeepFinished, o.KeepDead = time.Duration(r.finished), time.Duration(r.dead)
	o.KeepWorkers = r.workers.orForEver()
	o.PruneOthers = func(ctx context.Context) (int, error) {
		n, err := attached.New(st).Prune(ctx)
		if err != nil || r.audit <= 0 {
			return n, err
		}
		entries, err := operators.PruneAudit(ctx, st.DB(), time.Duration(r.audit))
		return n + entries, err
	}
	return o
}
