package webhook

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/store"
)

// messageDetails are the details of events that messages mention.
type messageDetails struct {
	Name   string `json:"name"`
	Host   string `json:"host"`
	Disk   string `json:"disk"`
	Key    string `json:"key"`
	Reason string `json:"reason"`
	Error  string `json:"error"`
}

// message says in a sentence what happened. It escapes all texts of others.
func (p payload) message(escape func(string) string) string {
	field := func(s string) string { return escape(singleLine(truncate(s, maxMessageField))) }
	var d messageDetails
	_ = json.Unmarshal(p.Data.Details, &d) // an event that was written by hand may have others
	text := p.subject(field, d)
	if reason := singleLine(truncate(cmp.Or(d.Error, d.Reason), maxMessageError)); reason != "" {
		text += ": " + escape(strings.TrimRight(reason, "."))
	}
	text += "."
	if n := p.Data.Suppressed; n > 0 {
		text += fmt.Sprintf(" Before it, %d alerts of this kind were not sent.", n)
	}
	return text
}

// subject says what happened, without the reason.
func (p payload) subject(field func(string) string, d messageDetails) string {
	of, stage := p.video(field), field(p.Data.Stage)
	switch p.Type {
	case "ping":
		return "This is a test of a webhook of Cuelight"
	case AlertDead, string(store.StageDead):
		return fmt.Sprintf("Stage %s of %s is dead after attempt %d", stage, of, p.Data.Attempt)
	case AlertRepeatedFailure:
		return fmt.Sprintf("Stage %s of %s fails repeatedly, now in attempt %d", stage, of, p.Data.Attempt)
	case string(store.AttemptFailed):
		return fmt.Sprintf("Attempt %d at stage %s of %s failed", p.Data.Attempt, stage, of)
	case AlertWorkerLost, string(store.WorkerLost):
		return fmt.Sprintf("Worker %s on host %s is lost", field(d.Name), field(d.Host))
	case AlertListenerDown:
		return fmt.Sprintf("A daemon on host %s receives no notifications from the database", field(d.Host))
	case AlertDiskLow:
		return fmt.Sprintf("Disk %s of host %s has less space than the reserve", field(d.Disk), field(d.Host))
	case AlertWorkerDisabled:
		return fmt.Sprintf("Key %s (%s) of a remote worker was disabled", field(d.Name), field(d.Key))
	}
	what := field(strings.ReplaceAll(strings.TrimPrefix(p.Type, alertPrefix), "_", " "))
	switch {
	case p.Data.Task != nil && stage != "":
		return fmt.Sprintf("Stage %s of %s: %s", stage, of, what)
	case p.Data.Task != nil:
		return strings.ToUpper(of[:1]) + of[1:] + ": " + what
	}
	return "Cuelight: " + what
}

// video names the task by its source, if it has one, and its id.
func (p payload) video(field func(string) string) string {
	t := p.Data.Task
	if t == nil {
		return "a task"
	}
	if name := redact.Name(t.Source); name != "" {
		return "video " + field(name) + " (task " + t.ID.String() + ")"
	}
	return "task " + t.ID.String()
}
