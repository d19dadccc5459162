package webhook

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/store"
)

// body is what is sent, in the shape that Standard Webhooks asks for.
type payload struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"` // when it happened
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
	Details    json.RawMessage `json:"details,omitempty"`    // what the event itself says
	Suppressed int             `json:"suppressed,omitempty"` // alerts of this kind since the last one sent
	Truncated  bool            `json:"truncated,omitempty"`  // not all of it would fit
}

// facts are what may be known of a task outside; those of a task that was deleted
// are its id.
type taskData struct {
	ID           store.ID     `json:"id"`
	Source       string       `json:"source,omitempty"`
	UserID       string       `json:"user_id,omitempty"`
	RequestID    string       `json:"request_id,omitempty"`
	Status       store.Status `json:"status,omitempty"`
	OverriddenBy store.ID     `json:"overridden_by,omitzero"`
}

func publicTask(t store.Task) *taskData {
	return &taskData{
		ID: t.ID, Source: redact.Source(t.Source), UserID: t.UserID, RequestID: t.RequestID,
		Status: t.Status, OverriddenBy: t.OverriddenBy,
	}
}

// How large things may be, in bytes. Receivers are promised 20 KiB by Standard
// Webhooks, headers included.
const (
	maxPayload    = 16 << 10
	maxTaskField  = 1 << 10
	maxErrorField = 4 << 10
)

// text is the body as it is signed and sent: no larger than it may be.
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
	if f := b.Data.Task; len(s) > maxPayload && f != nil { // letters that JSON writes as six
		b.Data.Task = &taskData{ID: f.ID, Status: f.Status, OverriddenBy: f.OverriddenBy}
		s = b.encodeJSON()
	}
	return s
}

func (b payload) encodeJSON() string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(b); err != nil { // details that are no JSON: PostgreSQL gives none
		b.Data.Details, b.Data.Truncated = nil, true
		return b.encodeJSON()
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// cutFacts shortens what somebody may have filled with anything.
func (b *payload) truncateTask() {
	if b.Data.Task == nil {
		return
	}
	f := *b.Data.Task // shared with other bodies
	for _, s := range []*string{&f.Source, &f.UserID, &f.RequestID} {
		if len(*s) > maxTaskField {
			*s, b.Data.Truncated = truncate(*s, maxTaskField), true
		}
	}
	b.Data.Task = &f
}

// cutError shortens the one thing that is long in practice.
func (b *payload) truncateError() {
	var fields map[string]json.RawMessage
	var text string
	if json.Unmarshal(b.Data.Details, &fields) != nil || json.Unmarshal(fields["error"], &text) != nil {
		return
	}
	short, err := json.Marshal(truncate(text, maxErrorField))
	if err != nil {
		return
	}
	fields["error"] = short
	if all, err := json.Marshal(fields); err == nil {
		b.Data.Details, b.Data.Truncated = all, true
	}
}

func truncate(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
