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
func alertSubject(alert string, e store.Event) string {
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
	return strings.TrimRight(alert+" "+truncate(about.Host, most)+" "+truncate(about.Disk, most), " ")
}

// quiet is how alerts of a subject stand with a webhook.
type cooldown struct {
	until      time.Time
	suppressed int // since the last one that was sent
	changed    bool
}

// pass reports whether an alert of an event at that time is to be sent, and how
// many were not since the last one. The cooldown goes by when things happened, not
// by when they are looked at: what piled up while nobody looked is told as it would
// have been.
func (q *cooldown) admit(at time.Time, cooldown time.Duration) (suppressed int, ok bool) {
	q.changed = true
	if at.Before(q.until) {
		q.suppressed++
		return 0, false
	}
	suppressed = q.suppressed
	q.until, q.suppressed = at.Add(cooldown), 0
	return suppressed, true
}

type cooldownKey struct {
	webhook store.ID
	subject string
}

const readCooldownsSQL = `
/* read cooldowns */
select webhook_id, subject, until, suppressed from cuelight_alert_cooldowns where webhook_id = any($1::uuid[])`

// quiet is how alerts of a subject stand with a webhook. What is read here cannot
// change before it is written: only the holder of the lease writes it.
func (p *planner) cooldown(ctx context.Context, to *plan, subject string) (*cooldown, error) {
	if p.cooldowns == nil {
		if err := p.readCooldowns(ctx); err != nil {
			return nil, err
		}
	}
	key := cooldownKey{to.endpoint.id, subject}
	q := p.cooldowns[key]
	if q == nil {
		q = &cooldown{}
		p.cooldowns[key] = q
	}
	if to.cooldowns == nil {
		to.cooldowns = map[string]*cooldown{}
	}
	to.cooldowns[subject] = q
	return q, nil
}

func (p *planner) readCooldowns(ctx context.Context) error {
	var ids []store.ID
	for _, to := range p.plans {
		ids = append(ids, to.endpoint.id)
	}
	rows, err := p.webhooks.db.Query(ctx, readCooldownsSQL, ids)
	if err != nil {
		return err
	}
	quiets := map[cooldownKey]*cooldown{}
	var key cooldownKey
	var q cooldown
	_, err = pgx.ForEachRow(rows, []any{&key.webhook, &key.subject, &q.until, &q.suppressed}, func() error {
		read := q
		quiets[key] = &read
		return nil
	})
	p.cooldowns = quiets
	return err
}
