package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/cuelight/cuelight/store"
)

// The alerts. A webhook requests them by name, or all of them as "alert".
const (
	// AlertRepeatedFailure means that a stage of a task failed for the third time or died
	// for the second.
	AlertRepeatedFailure = "alert.repeated_failure"
	// AlertWorkerLost means that the lease of a worker expired.
	AlertWorkerLost = "alert.worker_lost"
	// AlertDead means that a stage of a task has used up its attempts.
	AlertDead = "alert.dead"
	// AlertListenerDown is raised by a process that has received no notifications for a minute.
	AlertListenerDown = "alert.listener_down"
	// AlertDiskLow is raised by a process that has less disk space than its reserve.
	AlertDiskLow = "alert.disk_low"
	// AlertWorkerDisabled is raised when results of a remote worker were refused so often that
	// its key was disabled.
	AlertWorkerDisabled = "alert.worker_disabled"
)

const (
	allAlerts   = string(store.AlertRaised)
	alertPrefix = allAlerts + "."
)

// A stage that failed or died so often causes AlertRepeatedFailure.
const (
	repeatedFailureAttempts = 3 // in a row
	repeatedFailureDeaths   = 2
)

// Types returns the types that a webhook can request.
func Types() []string {
	var all []string
	for _, t := range store.EventTypes() {
		all = append(all, string(t)) // includes "alert"
	}
	return append(all, AlertRepeatedFailure, AlertWorkerLost, AlertDead, AlertListenerDown, AlertDiskLow, AlertWorkerDisabled)
}

// wantsEvent reports whether the webhook requested an event. One that requested no types gets all, but progress
// and what happens to every part.
func (h endpoint) wantsEvent(e store.Event) bool {
	t := e.Type
	if t == store.AlertRaised {
		return false // it is delivered under the alert's name
	}
	isFrequent := t == store.StageProgress || e.Part > 0 && (t == store.StageStarted || t == store.PartCompleted)
	return slices.Contains(h.types, string(t)) || len(h.types) == 0 && !isFrequent
}

// wantsAlert reports whether the webhook requested an alert.
func (h endpoint) wantsAlert(name string) bool {
	return slices.Contains(h.types, name) || slices.Contains(h.types, allAlerts)
}

// raisableAlerts are the alerts that no other event causes.
var raisableAlerts = map[string]string{
	AlertListenerDown: "listener_down", AlertDiskLow: "disk_low", AlertWorkerDisabled: "worker_disabled",
}

const raiseSQL = `
/* raise alert */
insert into {outbox} (type, data)
select $2, $1::jsonb || jsonb_build_object('name', $3::text)
 where exists (select from cuelight_webhooks where pipeline = $4 and disabled_at is null)`

// Raise records an alert, AlertListenerDown, AlertDiskLow or AlertWorkerDisabled, in the
// outbox, if there is a webhook. Data is a JSON object or nil. Its fields "host", "disk" and
// "key" select the cooldown. Callers can call Raise at every check that fails: the
// cooldown suppresses the repetitions.
func (w *Webhooks) Raise(ctx context.Context, alert string, data map[string]any) error {
	name, ok := raisableAlerts[alert]
	if !ok {
		return fmt.Errorf("raise alert: %w: %q cannot be raised", ErrInvalid, alert)
	}
	if data == nil {
		data = map[string]any{}
	}
	text, err := json.Marshal(data)
	if err == nil {
		_, err = w.db.Exec(ctx, w.options.Graph.SQL(raiseSQL), string(text), string(store.AlertRaised), name, w.pipeline())
	}
	if err != nil {
		return fmt.Errorf("raise %s: %w", alert, err)
	}
	return nil
}

// alertsOf returns the alerts that an event causes. It reads the history only if an
// endpoint wants AlertRepeatedFailure.
func (w *Webhooks) alertsOf(ctx context.Context, e store.Event, endpoints []endpoint) ([]string, error) {
	wantsRepeated := slices.ContainsFunc(endpoints, func(h endpoint) bool { return h.wantsAlert(AlertRepeatedFailure) })
	switch e.Type {
	case store.WorkerLost:
		return []string{AlertWorkerLost}, nil
	case store.AttemptFailed, store.AttemptExpired:
		if wantsRepeated && e.Attempt >= repeatedFailureAttempts {
			return []string{AlertRepeatedFailure}, nil
		}
	case store.StageDead:
		if !wantsRepeated {
			return []string{AlertDead}, nil
		}
		deaths, err := w.countDeaths(ctx, e)
		if err == nil && deaths >= repeatedFailureDeaths {
			return []string{AlertDead, AlertRepeatedFailure}, nil
		}
		return []string{AlertDead}, err
	case store.AlertRaised:
		var raised struct {
			Name string `json:"name"`
		}
		if json.Unmarshal(e.Data, &raised) == nil && raised.Name != "" {
			return []string{alertPrefix + raised.Name}, nil
		}
	}
	return nil, nil
}

// countDeaths counts the failed attempts of the event's stage that had no retry.
func (w *Webhooks) countDeaths(ctx context.Context, e store.Event) (int, error) {
	history, err := w.options.Store.History(ctx, e.Task)
	if errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	deaths := 0
	for _, a := range history {
		if a.Stage == e.Stage && (a.Outcome == "failed" || a.Outcome == "expired") && a.RetryAt == nil {
			deaths++
		}
	}
	return deaths, err
}
