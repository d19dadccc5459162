package daemon

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/metrics/health"
	"github.com/cuelight/cuelight/internal/webhook"
)

const (
	// alertInterval is how often this host is checked.
	alertInterval = 30 * time.Second
	// listenerAlertAfter is how long the listener may be down before an alert.
	listenerAlertAfter = time.Minute
)

// alertChecks raise alerts about this host. They raise one for as long as its cause
// lasts; the webhooks' cooldowns suppress repetitions.
type alertChecks struct {
	webhooks        *webhook.Webhooks
	log             *zap.Logger
	host            string
	listenerHealthy func() bool
	disks           *health.Health // with a timeout, so that a disk that hangs blocks nothing

	listenerDownSince time.Time // zero while it is healthy
}

func (a *alertChecks) run(ctx context.Context) {
	report := failureLogger(a.log, "alerts cannot be stored", "alerts are stored again")
	for ctxsleep.For(ctx, alertInterval) == nil {
		if err := a.check(ctx); ctx.Err() == nil {
			report(err)
		}
	}
}

func (a *alertChecks) check(ctx context.Context) (err error) {
	switch {
	case a.listenerHealthy():
		a.listenerDownSince = time.Time{}
	case a.listenerDownSince.IsZero():
		a.listenerDownSince = time.Now()
	case time.Since(a.listenerDownSince) >= listenerAlertAfter:
		seconds := int(time.Since(a.listenerDownSince).Seconds())
		err = a.webhooks.Raise(ctx, webhook.AlertListenerDown, map[string]any{"host": a.host, "for_s": seconds})
	}
	for _, disk := range a.disks.Report(ctx).Checks {
		if disk.Status == health.Pass {
			continue
		}
		data := map[string]any{"host": a.host, "disk": disk.Name, "error": disk.Error}
		err = errors.Join(err, a.webhooks.Raise(ctx, webhook.AlertDiskLow, data))
	}
	return err
}
