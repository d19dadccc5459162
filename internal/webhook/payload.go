package webhook

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
	"unicode"

	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/store"
)

// Maximum sizes in bytes. Standard Webhooks recommends at most 20 KiB, with headers.
const (
	maxPayload    = 16 << 10
	maxTaskField  = 1 << 10
	maxErrorField = 4 << 10
)

// payload has the structure that Standard Webhooks recommends.
type payload struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"` // of the event
	Data      eventData `json:"data"`
}

type eventData struct {
	EventID    int64           `json:"event_id,omitempty"`
	Pipeline   string          `json:"pipeline"`
	Webhook    store.ID        `json:"webhook_id,omitzero"` // of a ping
	Task       *taskData       `json:"task,omitempty"`
	Stage      string          `json:"stage,omitempty"`
	Attempt    int             `json:"attempt,omitempty"`
	Worker     store.ID        `json:"worker_id,omitzero"`
	Details    json.RawMessage `json:"details,omitempty"`    // the event's own data
	Suppressed int             `json:"suppressed,omitempty"` // alerts since the last one that was sent
	Truncated  bool            `json:"truncated,omitempty"`
}

// taskData is the public data of a task. A deleted task has only its id and its context.
type taskData struct {
	ID           store.ID     `json:"id"`
	Source       string       `json:"source,omitempty"`
	UserID       string       `json:"user_id,omitempty"`
	RequestID    string       `json:"request_id,omitempty"`
	Status       store.Status `json:"status,omitempty"`
	OverriddenBy store.ID     `json:"overridden_by,omitzero"`

	UserContext json.RawMessage `json:"user_context,omitempty"`
}

func publicTask(t store.Task) *taskData {
	return &taskData{
		ID: t.ID, Source: redact.Source(t.Source), UserID: t.UserID, RequestID: t.RequestID,
		Status: t.Status, OverriddenBy: t.OverriddenBy, UserContext: t.UserContext,
	}
}

// encode returns the JSON text to sign and send. It truncates fields until the text is at
// most maxPayload bytes, but not the context of the task, which is at most store.MaxUserContext.
func (b payload) encode() string {
	b.truncateTask()
	s := b.encodeJSON()
	if len(s) > maxPayload {
		b.truncateError()
		s = b.encodeJSON()
	}
	if len(s) > maxPayload {
		b.Data.Details, b.Data.Truncated = nil, true
		s = b.encodeJSON()
	}
	if t := b.Data.Task; len(s) > maxPayload && t != nil { // JSON writes some characters as six bytes
		b.Data.Task = &taskData{ID: t.ID, Status: t.Status, OverriddenBy: t.OverriddenBy, UserContext: t.UserContext}
		s = b.encodeJSON()
	}
	return s
}

func (b payload) encodeJSON() string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(b); err != nil { // invalid details; PostgreSQL returns none
		b.Data.Details, b.Data.Truncated = nil, true
		return b.encodeJSON()
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// truncateTask shortens the fields that users fill.
func (b *payload) truncateTask() {
	if b.Data.Task == nil {
		return
	}
	t := *b.Data.Task // other payloads share it
	for _, s := range []*string{&t.Source, &t.UserID, &t.RequestID} {
		if len(*s) > maxTaskField {
			*s, b.Data.Truncated = truncate(*s, maxTaskField), true
		}
	}
	b.Data.Task = &t
}

// truncateError shortens the error in the details, the only long field in practice.
func (b *payload) truncateError() {
	var fields map[string]json.RawMessage
	var text string
	if json.Unmarshal(b.Data.Details, &fields) != nil || json.Unmarshal(fields["error"], &text) != nil {
		return
	}
	truncated, err := json.Marshal(truncate(text, maxErrorField))
	if err != nil {
		return
	}
	fields["error"] = truncated
	if all, err := json.Marshal(fields); err == nil {
		b.Data.Details, b.Data.Truncated = all, true
	}
}

// truncate cuts s to maxBytes bytes of valid UTF-8 and appends an ellipsis.
func truncate(s string, maxBytes int) string {
	if len(s) <= maxBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxBytes], "") + "…"
}

// sanitize makes foreign text short and valid for PostgreSQL.
func sanitize(s string) string {
	s = strings.ToValidUTF8(truncate(s, 500), "\uFFFD")
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}

// singleLine makes foreign text a part of a sentence.
func singleLine(s string) string {
	printable := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "")) // the last character may be incomplete
	return strings.Join(strings.Fields(printable), " ")
}
