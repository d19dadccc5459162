package webhook

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// subject is what an alert is about, as far as it is not to be repeated: its kind,
// and of hosts which one, and which of its disks. One that is in trouble for long
// would hide all others for as long.
func subject(alert string, e store.Event) string {
	switch alert {
	case AlertWorkerLost, AlertListenerDown, AlertDiskLow:
	default:
		return alert
	}
	const most = 200 // each: it is a key
	var about struct {
		Host string `json:"host"`
		Disk string `json:"disk"`
	}
	_ = json.Unmarshal(e.Data, &about) // whoever writes events by hand may leave it out
	return strings.TrimRight(alert+" "+cut(about.Host, most)+" "+cut(about.Disk, most), " ")
}

// quiet is how alerts of a subject stand with a webhook.
type quiet struct {
	until      time.Time
	suppressed int // since the last one that was sent
	changed    bool
}

// pass reports whether an alert of an event at that time is to be sent, and how
// many were not since the last one. The cooldown goes by when things happened, not
// by when they are looked at: what piled up while nobody looked is told as it would
// have been.
func (q *quiet) pass(at time.Time, cooldown time.Duration) (suppressed int, ok bool) {
	q.changed = true
	if at.Before(q.until) {
		q.suppressed++
		return 0, false
	}
	suppressed = q.suppressed
	q.until, q.suppressed = at.Add(cooldown), 0
	return suppressed, true
}

type quietKey struct {
	hook    store.ID
	subject string
}

const quietSQL = `
/* read cooldowns */
select webhook_id, subject, until, suppressed from cuelight_alert_cooldowns where webhook_id = any($1::uuid[])`

// quiet is how alerts of a subject stand with a webhook. What is read here cannot
// change before it is written: only the holder of the lease writes it.
func (p *planner) quiet(ctx context.Context, to *plan, subject string) (*quiet, error) {
	if p.quiets == nil {
		if err := p.readQuiets(ctx); err != nil {
			return nil, err
		}
	}
	key := quietKey{to.hook.id, subject}
	q := p.quiets[key]
	if q == nil {
		q = &quiet{}
		p.quiets[key] = q
	}
	if to.quiet == nil {
		to.quiet = map[string]*quiet{}
	}
	to.quiet[subject] = q
	return q, nil
}

func (p *planner) readQuiets(ctx context.Context) error {
	var ids []store.ID
	for _, to := range p.plans {
		ids = append(ids, to.hook.id)
	}
	rows, err := p.w.db.Query(ctx, quietSQL, ids)
	if err != nil {
		return err
	}
	quiets := map[quietKey]*quiet{}
	var key quietKey
	var q quiet
	_, err = pgx.ForEachRow(rows, []any{&key.hook, &key.subject, &q.until, &q.suppressed}, func() error {
		read := q
		quiets[key] = &read
		return nil
	})
	p.quiets = quiets
	return err
}
