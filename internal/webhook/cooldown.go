package webhook

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// alertSubject returns the key of an alert's cooldown: its name and, for some alerts, the
// host and the disk, or the key. Otherwise a host in permanent trouble would suppress the alerts of
// all others.
func alertSubject(alert string, e store.Event) string {
	switch alert {
	case AlertWorkerLost, AlertListenerDown, AlertDiskLow, AlertWorkerDisabled:
	default:
		return alert
	}
	const maxPart = 200 // bytes
	var data struct {
		Host string `json:"host"`
		Disk string `json:"disk"`
		Key  string `json:"key"`
	}
	_ = json.Unmarshal(e.Data, &data) // an event that was written by hand may have none
	subject := alert
	for _, part := range []string{data.Host, data.Disk, data.Key} {
		subject += " " + truncate(part, maxPart)
	}
	return strings.TrimRight(subject, " ")
}

// cooldown is the state of one alert subject for one webhook.
type cooldown struct {
	until      time.Time
	suppressed int // since the last alert that was sent
}

// admit reports whether to send an alert, and how many were suppressed before it. It
// compares the times of events, not the present time, so a lagging webhook gets the same
// alerts as others.
func (c *cooldown) admit(at time.Time, duration time.Duration) (suppressed int, ok bool) {
	if at.Before(c.until) {
		c.suppressed++
		return 0, false
	}
	suppressed = c.suppressed
	c.until, c.suppressed = at.Add(duration), 0
	return suppressed, true
}

type cooldownKey struct {
	webhook store.ID
	subject string
}

// cooldown returns the state of a subject, and adds it to the plan. The state cannot
// change before it is written, because only the holder of the lease writes it.
func (p *planner) cooldown(ctx context.Context, to *plan, subject string) (*cooldown, error) {
	if p.cooldowns == nil {
		if err := p.readCooldowns(ctx); err != nil {
			return nil, err
		}
	}
	key := cooldownKey{to.endpoint.id, subject}
	c := p.cooldowns[key]
	if c == nil {
		c = &cooldown{}
		p.cooldowns[key] = c
	}
	if to.cooldowns == nil {
		to.cooldowns = map[string]*cooldown{}
	}
	to.cooldowns[subject] = c
	return c, nil
}

const readCooldownsSQL = `
/* read cooldowns */
select webhook_id, subject, until, suppressed from cuelight_alert_cooldowns where webhook_id = any($1::uuid[])`

func (p *planner) readCooldowns(ctx context.Context) error {
	var ids []store.ID
	for _, to := range p.plans {
		ids = append(ids, to.endpoint.id)
	}
	rows, err := p.webhooks.db.Query(ctx, readCooldownsSQL, ids)
	if err != nil {
		return err
	}
	cooldowns := map[cooldownKey]*cooldown{}
	var key cooldownKey
	var c cooldown
	_, err = pgx.ForEachRow(rows, []any{&key.webhook, &key.subject, &c.until, &c.suppressed}, func() error {
		cooldowns[key] = new(c)
		return nil
	})
	p.cooldowns = cooldowns
	return err
}
