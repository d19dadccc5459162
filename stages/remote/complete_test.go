package remote_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/stages"
)

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

func TestExchange_WithoutSlotsKeepsThoseOfARequestThatWaits(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	worker := s.register("key-1")
	s.submit("one")
	c := s.claim("key-1", worker, "first")
	granted := make(chan []claimed, 1)
	go func() { granted <- s.exchange(worker, `"free_slots":{"first":1},"wait_s":30`).Claims }()
	waittest.Equal(t, "the number of waiting requests", 1, s.Waiting)
	s.report("key-1", worker, c.Token, `"outcome":"completed","result":1`)
	s.submit("two")
	select {
	case claims := <-granted:
		if len(claims) != 1 {
			t.Errorf("the claims are %v", claims)
		}
	case <-time.After(10 * time.Second):
		t.Error("the waiting request got nothing")
	}
}

func TestWorkers_ListsAndExpiresThoseOfTheKey(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	one, two := s.register("key-1"), s.register("key-1")
	var out struct {
		Workers []map[string]any
	}
	s.send("GET", "/workers", "", http.StatusOK, &out)
	if len(out.Workers) != 2 || len(out.Workers[0]) != 5 || out.Workers[0]["host"] != "h" {
		t.Errorf("the workers are %v", out.Workers)
	}
	var expired struct {
		Workers []string `json:"worker_ids"`
	}
	s.send("POST", "/workers/expire", `{"worker_ids": ["`+one.String()+`", "01a1fb36-1b70-7bf3-8fb6-9fd725a461d2"]}`, http.StatusOK, &expired)
	if len(expired.Workers) != 1 || expired.Workers[0] != one.String() {
		t.Errorf("expired are %v", expired.Workers)
	}
	s.send("POST", "/deregister", `{"worker_id": "`+two.String()+`"}`, http.StatusNoContent, nil)
}

func TestCoordinator_HasClaimsUntilTheyAreReported(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "one", Work: echo, Slots: 1})
	worker := s.register("key-1")
	if s.HasClaims() {
		t.Error("a worker without work has claims")
	}
	s.submit("a.mp4")
	claim := s.claim("key-1", worker, "one")
	if !s.HasClaims() {
		t.Error("a claim was granted, and there are none")
	}
	if other := s.startCoordinator(nil); other.HasClaims() {
		t.Error("another coordinator has the claim")
	}
	s.report("key-1", worker, claim.Token, `"outcome":"completed","result":1`)
	if s.HasClaims() {
		t.Error("a reported claim is still there")
	}
}
