package webhook

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/store"
)

func TestPayload_IsSmallJSON(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 40<<10)
	details, err := json.Marshal(map[string]string{"error": long, "error_class": "exit"})
	must(t, err)
	m := payload{Type: "attempt_failed", Data: eventData{
		Task:    &taskData{Source: "/" + long, UserID: long, RequestID: "<&>"},
		Details: details,
	}}
	text := m.encode()
	var back payload
	must(t, json.Unmarshal([]byte(text), &back))
	if len(text) > maxPayload || !back.Data.Truncated ||
		!strings.Contains(string(back.Data.Details), `"error_class":"exit"`) ||
		!strings.Contains(text, "<&>") || strings.Contains(text, "\uFFFD") {
		t.Errorf("%d bytes: %.200s", len(text), text)
	}
	m.Data.Details = json.RawMessage(`{"what": "` + long + `"}`)
	if text = m.encode(); len(text) > maxPayload || json.Unmarshal([]byte(text), &back) != nil {
		t.Errorf("%d bytes: %.200s", len(text), text)
	}
	if m.Data.Task.UserID != long {
		t.Error("the shared data was truncated")
	}
	// JSON encodes these characters as six bytes.
	odd := strings.Repeat("\x01", 2<<10)
	m.Data.Task = &taskData{ID: newID(), Source: odd, UserID: odd, RequestID: odd, Status: "dead"}
	text = m.encode()
	if len(text) > maxPayload || json.Unmarshal([]byte(text), &back) != nil || back.Data.Task.ID != m.Data.Task.ID ||
		back.Data.Task.Status != "dead" || !back.Data.Truncated {
		t.Errorf("%d bytes: %.200s", len(text), text)
	}
	if text = (payload{Type: "completed"}).encode(); strings.Contains(text, "truncated") {
		t.Error(text)
	}
}

func TestPayload_ContainsTheWholeContextOfTheTask(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("<", 40<<10)
	details, err := json.Marshal(map[string]string{"error": long})
	must(t, err)
	text := json.RawMessage(`{"a":"` + long[:store.MaxUserContext-8] + `"}`)
	task := publicTask(store.Task{ID: newID(), UserID: long, RequestID: long, Source: "/" + long, UserContext: text})
	for _, details := range []json.RawMessage{nil, details, []byte(`{"what": "` + long + `"}`)} {
		got := payload{Data: eventData{Task: task, Details: details}}.encode()
		if len(got) > maxPayload || !strings.Contains(got, `"user_context":`+string(text)) {
			t.Errorf("%d bytes: %.200s", len(got), got)
		}
	}
}

func TestPayload_ContainsNoSecretOfASource(t *testing.T) {
	t.Parallel()
	text := (payload{
		Data: eventData{Task: publicTask(store.Task{Source: "s3://key:hunter22@bucket/clip.mp4?X-Amz-Signature=c0ffee123"})},
	}).encode()
	if strings.Contains(text, "c0ffee") || strings.Contains(text, "hunter") ||
		!strings.Contains(text, `"s3://bucket/clip.mp4"`) {
		t.Error(text)
	}
}
