package main

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/cuelight/cuelight/internal/metrics/health"
	"github.com/cuelight/cuelight/internal/webhook"
)

const (
	// alarmEvery is how often this host is looked at.
	alarmEvery = 30 * time.Second
	// deafFor is how long notifications may fail to come in before somebody is told.
	deafFor = time.Minute
)

// alarms are what a daemon finds wrong with its host and tells the webhooks of. They
// do not repeat an alert within their cooldowns, so it is told as often as it is
// seen.
type alarms struct {
	hooks   *webhook.Webhooks
	log     *zap.Logger
	host    string
	hearing func() bool
	disks   *health.Health // asked so that one that does not answer holds up nothing
	deaf    time.Time      // since when notifications do not come in
	failed  bool
}

func (a *alarms) run(ctx context.Context) {
	for pause(ctx, alarmEvery) == nil {
		err := a.look(ctx)
		if err != nil && !a.failed && ctx.Err() == nil {
			a.log.Warn("an alert could not be kept", zap.Error(err))
		}
		a.failed = err != nil
	}
}

func (a *alarms) look(ctx context.Context) (err error) {
	switch {
	case a.hearing():
		a.deaf = time.Time{}
	case a.deaf.IsZero():
		a.deaf = time.Now()
	case time.Since(a.deaf) >= deafFor:
		err = a.hooks.Raise(ctx, webhook.AlertListenerDown, map[string]any{"host": a.host, "for_s": int(time.Since(a.deaf).Seconds())})
	}
	for _, disk := range a.disks.Report(ctx).Checks {
		if disk.Status == health.Pass {
			continue
		}
		err = errors.Join(err, a.hooks.Raise(ctx, webhook.AlertDiskLow, map[string]any{"host": a.host, "disk": disk.Name, "error": disk.Error}))
	}
	return err
}
