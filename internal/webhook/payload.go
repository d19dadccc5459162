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
type body struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"` // when it happened
	Data      data      `json:"data"`
}

type data struct {
	Event      int64           `json:"event_id,omitempty"`
	Pipeline   string          `json:"pipeline"`
	Webhook    store.ID        `json:"webhook_id,omitzero"` // of a ping
	Task       *facts          `json:"task,omitempty"`
	Stage      string          `json:"stage,omitempty"`
	Attempt    int             `json:"attempt,omitempty"`
	Worker     store.ID        `json:"worker_id,omitzero"`
	Details    json.RawMessage `json:"details,omitempty"`    // what the event itself says
	Suppressed int             `json:"suppressed,omitempty"` // alerts of this kind since the last one sent
	Truncated  bool            `json:"truncated,omitempty"`  // not all of it would fit
}

// facts are what may be known of a task outside; those of a task that was deleted
// are its id.
type facts struct {
	ID           store.ID     `json:"id"`
	Source       string       `json:"source,omitempty"`
	UserID       string       `json:"user_id,omitempty"`
	RequestID    string       `json:"request_id,omitempty"`
	Status       store.Status `json:"status,omitempty"`
	OverriddenBy store.ID     `json:"overridden_by,omitzero"`
}

func publicFacts(t store.Task) *facts {
	return &facts{
		ID: t.ID, Source: redact.Source(t.Source), UserID: t.UserID, RequestID: t.RequestID,
		Status: t.Status, OverriddenBy: t.OverriddenBy,
	}
}

// How large things may be, in bytes. Receivers are promised 20 KiB by Standard
// Webhooks, headers included.
const (
	payloadMost = 16 << 10
	factMost    = 1 << 10
	errorMost   = 4 << 10
)

// text is the body as it is signed and sent: no larger than it may be.
func (b body) text() string {
	b.cutFacts()
	s := b.json()
	if len(s) > payloadMost {
		b.cutError()
		s = b.json()
	}
	if len(s) > payloadMost {
		b.Data.Details, b.Data.Truncated = nil, true
		s = b.json()
	}
	if f := b.Data.Task; len(s) > payloadMost && f != nil { // letters that JSON writes as six
		b.Data.Task = &facts{ID: f.ID, Status: f.Status, OverriddenBy: f.OverriddenBy}
		s = b.json()
	}
	return s
}

func (b body) json() string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(b); err != nil { // details that are no JSON: PostgreSQL gives none
		b.Data.Details, b.Data.Truncated = nil, true
		return b.json()
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// cutFacts shortens what somebody may have filled with anything.
func (b *body) cutFacts() {
	if b.Data.Task == nil {
		return
	}
	f := *b.Data.Task // shared with other bodies
	for _, s := range []*string{&f.Source, &f.UserID, &f.RequestID} {
		if len(*s) > factMost {
			*s, b.Data.Truncated = cut(*s, factMost), true
		}
	}
	b.Data.Task = &f
}

// cutError shortens the one thing that is long in practice.
func (b *body) cutError() {
	var fields map[string]json.RawMessage
	var text string
	if json.Unmarshal(b.Data.Details, &fields) != nil || json.Unmarshal(fields["error"], &text) != nil {
		return
	}
	short, err := json.Marshal(cut(text, errorMost))
	if err != nil {
		return
	}
	fields["error"] = short
	if all, err := json.Marshal(fields); err == nil {
		b.Data.Details, b.Data.Truncated = all, true
	}
}

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
