package webhook

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestDataIsJSONAndSmall(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 40<<10)
	details, err := json.Marshal(map[string]string{"error": long, "error_class": "exit"})
	must(t, err)
	m := body{Type: "attempt_failed", Data: data{
		Task:    &facts{Source: "/" + long, UserID: long, RequestID: "<&>"},
		Details: details,
	}}
	text := m.text()
	var back body
	must(t, json.Unmarshal([]byte(text), &back))
	if len(text) > payloadMost || !back.Data.Truncated || !strings.Contains(string(back.Data.Details), `"error_class":"exit"`) ||
		!strings.Contains(text, "<&>") || strings.Contains(text, "\uFFFD") {
		t.Errorf("%d bytes: %.200s", len(text), text)
	}
	m.Data.Details = json.RawMessage(`{"what": "` + long + `"}`)
	if text = m.text(); len(text) > payloadMost || json.Unmarshal([]byte(text), &back) != nil {
		t.Errorf("%d bytes: %.200s", len(text), text)
	}
	if m.Data.Task.UserID != long {
		t.Error("what is shared was cut")
	}
	// Letters that take six times their room.
	odd := strings.Repeat("\x01", 2<<10)
	m.Data.Task = &facts{ID: newID(), Source: odd, UserID: odd, RequestID: odd, Status: "dead"}
	if text = m.text(); len(text) > payloadMost || json.Unmarshal([]byte(text), &back) != nil || back.Data.Task.ID != m.Data.Task.ID ||
		back.Data.Task.Status != "dead" || !back.Data.Truncated {
		t.Errorf("%d bytes: %.200s", len(text), text)
	}
	if text = (body{Type: "done"}).text(); strings.Contains(text, "truncated") {
		t.Error(text)
	}
}

func TestSourceIsShownWithoutSecrets(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"/videos/a?b#c.mp4": "/videos/a?b#c.mp4",
		"a.mp4":             "a.mp4",
		"https://u:p@h:8443/a%2Fb.mp4?sig=s#frag": "https://h:8443/a%2Fb.mp4",
		"s3://key:secret@bucket/a.mp4":            "s3://bucket/a.mp4",
		"file:///videos/a.mp4":                    "file:///videos/a.mp4",
		"HTTP://u@h/":                             "http://h/",
		"https:/u:p@h/a":                          "https:…",
		"https://u:p@h/%zz":                       "https:…",
		"data:video/mp4;base64,AAAA":              "data:…",
	} {
		if got := publicSource(source); got != want {
			t.Errorf("%s is shown as %s, want %s", source, got, want)
		}
	}
}
