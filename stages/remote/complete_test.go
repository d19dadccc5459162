package remote_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/stages"
)

// rawWorker is a worker without the Client, as one in another language is.
type rawWorker struct {
	s  *site
	id string
}

func (s *site) newRawWorker() rawWorker { return rawWorker{s, s.register("key-1").String()} }

// send sends a request and decodes the answer, which must have the status. out may be nil.
func (s *site) send(method, path, body string, status int, out any) {
	s.t.Helper()
	got, text := s.sendAs("key-1", method, path, body)
	if got != status {
		s.t.Fatalf("%s %s: status %d: %s", method, path, got, text)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(text, out); err != nil {
		s.t.Fatalf("%s %s: %v: %s", method, path, err, text)
	}
}

// exchange returns the tokens of the claims.
func (w rawWorker) exchange(wait, free string) (tokens []string) {
	w.s.t.Helper()
	var out struct {
		Claims []struct{ Token string }
	}
	w.s.send("POST", "/exchange?wait="+wait, `{"worker_id": "`+w.id+`", "free_slots": `+free+`}`, http.StatusOK, &out)
	for _, claim := range out.Claims {
		tokens = append(tokens, claim.Token)
	}
	return tokens
}

func TestComplete_KeepsTheSlotsOfARequestThatWaits(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	w := s.newRawWorker()
	s.submit("one")
	claims := w.exchange("30s", `{"first": 2}`)
	if len(claims) != 1 {
		t.Fatalf("the claims are %v", claims)
	}
	granted := make(chan []string, 1)
	go func() { granted <- w.exchange("30s", `{"first": 1}`) }()
	waittest.Equal(t, "the number of waiting requests", 1, s.Waiting)
	s.send("POST", "/claims/"+claims[0]+"/complete", `{"result": 1}`, http.StatusNoContent, nil)
	s.submit("two")
	select {
	case tokens := <-granted:
		if len(tokens) != 1 {
			t.Errorf("the claims are %v", tokens)
		}
	case <-time.After(10 * time.Second):
		t.Error("the waiting request got nothing")
	}
}

func TestWorkers_ListsAndExpiresThoseOfTheKey(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	one, two := s.newRawWorker(), s.newRawWorker()
	var out struct {
		Workers []map[string]any
	}
	s.send("GET", "/workers", "", http.StatusOK, &out)
	if len(out.Workers) != 2 || len(out.Workers[0]) != 4 || out.Workers[0]["host"] != "h" {
		t.Errorf("the workers are %v", out.Workers)
	}
	var expired struct {
		Workers []string `json:"worker_ids"`
	}
	s.send("POST", "/workers/expire", `{"worker_ids": ["`+one.id+`", "01a1fb36-1b70-7bf3-8fb6-9fd725a461d2"]}`, http.StatusOK, &expired)
	if len(expired.Workers) != 1 || expired.Workers[0] != one.id {
		t.Errorf("expired are %v", expired.Workers)
	}
	s.send("POST", "/deregister", `{"worker_id": "`+two.id+`"}`, http.StatusNoContent, nil)
}
