package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/cuelight/cuelight/store"
)

// The alerts. A webhook gets those it asks for by name, or all of them as "alert".
const (
	AlertRepeatedFailure = "alert.repeated_failure" // a stage of a task failed for the third time, or died for the second
	AlertWorkerLost      = "alert.worker_lost"
	AlertDead            = "alert.dead"
	AlertListenerDown    = "alert.listener_down" // raised by a process
	AlertDiskLow         = "alert.disk_low"      // raised by a process
)

const allAlerts = string(store.AlertRaised)

// alertPrefix begins the names of alerts.
const alertPrefix = allAlerts + "."

// Types are what a webhook can ask for.
func Types() []string {
	var all []string
	for _, t := range store.EventTypes() {
		all = append(all, string(t)) // with "alert"
	}
	return append(all, AlertRepeatedFailure, AlertWorkerLost, AlertDead, AlertListenerDown, AlertDiskLow)
}

// wants reports whether a webhook is to be told of an event of a type; wantsAlert
// whether it has asked for an alert.
func (h endpoint) wantsEvent(t store.EventType) bool {
	if t == store.AlertRaised {
		return false // it is told under its own name
	}
	return slices.Contains(h.types, string(t)) || len(h.types) == 0 && t != store.StageProgress
}

func (h endpoint) wantsAlert(name string) bool {
	return slices.Contains(h.types, name) || slices.Contains(h.types, allAlerts)
}

// raisable are the alerts that no other event tells of.
var raisableAlerts = map[string]string{AlertListenerDown: "listener_down", AlertDiskLow: "disk_low"}

const raiseSQL = `
/* raise alert */
insert into %soutbox (type, data)
select $2, $1::jsonb || jsonb_build_object('what', $3::text)
 where exists (select from cuelight_webhooks where pipeline = $4 and disabled_at is null)`

// Raise tells of something that only this process sees: AlertListenerDown or
// AlertDiskLow. What is in data, a JSON object or nil, is for people, but for host
// and disk: each has a cooldown of its own. So it may be called as often as one
// looks. It returns when the alert is in the outbox, where it is put if there is a
// webhook; whoever delivers webhooks sends it.
func (w *Webhooks) Raise(ctx context.Context, alert string, data map[string]any) error {
	what, ok := raisableAlerts[alert]
	if !ok {
		return fmt.Errorf("raise alert: %w: %q is not for raising", ErrInvalid, alert)
	}
	if data == nil {
		data = map[string]any{}
	}
	text, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("raise %s: %w", alert, err)
	}
	if _, err := w.db.Exec(ctx, fmt.Sprintf(raiseSQL, w.tablePrefix()), string(text), string(store.AlertRaised), what, w.options.Pipeline); err != nil {
		return fmt.Errorf("raise %s: %w", alert, err)
	}
	return nil
}

// prefix begins the names of the pipeline's tables; see [store.NewGraph].
func (w *Webhooks) tablePrefix() string {
	if w.options.Pipeline == "video" {
		return ""
	}
	return w.options.Pipeline + "_"
}

// Repeated failures: so many attempts of one stage in a row, or so many deaths.
const (
	repeatedFailureAttempts = 3
	repeatedFailureDeaths   = 2
)

// alerts are those that an event gives rise to. History is read only where
// somebody wants to know.
func (w *Webhooks) alertsOf(ctx context.Context, e store.Event, hooks []endpoint) ([]string, error) {
	repeated := slices.ContainsFunc(hooks, func(h endpoint) bool { return h.wantsAlert(AlertRepeatedFailure) })
	switch e.Type {
	case store.WorkerLost:
		return []string{AlertWorkerLost}, nil
	case store.AttemptFailed, store.AttemptExpired:
		if repeated && e.Attempt >= repeatedFailureAttempts {
			return []string{AlertRepeatedFailure}, nil
		}
	case store.StageDead:
		if !repeated {
			return []string{AlertDead}, nil
		}
		died, err := w.countDeaths(ctx, e)
		if err == nil && died >= repeatedFailureDeaths {
			return []string{AlertDead, AlertRepeatedFailure}, nil
		}
		return []string{AlertDead}, err
	case store.AlertRaised:
		var raised struct {
			What string `json:"what"`
		}
		if json.Unmarshal(e.Data, &raised) == nil && raised.What != "" {
			return []string{alertPrefix + raised.What}, nil
		}
	}
	return nil, nil
}

// deaths is how often the event's stage has used up its attempts: an attempt that
// failed and was not to be tried again.
func (w *Webhooks) countDeaths(ctx context.Context, e store.Event) (int, error) {
	history, err := w.options.Store.History(ctx, e.Task)
	n := 0
	for _, a := range history {
		if a.Stage == e.Stage && (a.Outcome == "failed" || a.Outcome == "expired") && a.RetryAt == nil {
			n++
		}
	}
	if errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	return n, err
}
