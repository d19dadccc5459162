package remote_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// heartbeat sends a heartbeat with claims at some percent, and returns the tokens of the lost ones.
func (s *site) heartbeat(worker store.ID, percent int, tokens ...store.ID) (lost []store.ID) {
	s.t.Helper()
	running := ""
	for i, token := range tokens {
		running += fmt.Sprintf(`%s{"token":%q,"started":true,"percent":%d}`, map[bool]string{true: ","}[i > 0], token, percent)
	}
	var out struct{ Lost []struct{ Token store.ID } }
	s.call("key-1", "/heartbeat", fmt.Sprintf(`{"worker_id":%q,"running":[%s]}`, worker, running), &out)
	for _, l := range out.Lost {
		lost = append(lost, l.Token)
	}
	return lost
}

func TestCoordinator_EndsAClaimWithoutProgress(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo, Stall: time.Hour, MaxAttempts: 2})
	worker := s.register("key-1")
	s.submitMany(2)
	claims := s.claimSome("key-1", worker, 2, "5")
	if len(claims) != 2 {
		t.Fatalf("%d claims", len(claims))
	}
	moving, still := claims[0], claims[1]
	s.heartbeat(worker, 10, moving.Token, still.Token)
	if err := s.EndStalled(t.Context(), still.Token, time.Now().Add(-2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if lost := s.heartbeat(worker, 20, moving.Token, still.Token); len(lost) != 1 || lost[0] != still.Token {
		t.Errorf("lost: %v, want %v", lost, still.Token)
	}
	history, err := s.History(t.Context(), still.Task)
	if err != nil || len(history) != 1 || history[0].Class != "stalled" {
		t.Errorf("the history has %+v, %v", history, err)
	}
	if !s.report("key-1", worker, still.Token, `"outcome":"completed","result":1`) {
		t.Error("a late result is accepted")
	}
	if s.report("key-1", worker, moving.Token, `"outcome":"completed","result":1`) {
		t.Error("the other claim is lost, too")
	}
}

func TestCoordinator_LimitsHowLongAWorkerPostponesATask(t *testing.T) {
	t.Parallel()
	for name, outcome := range map[string]string{
		"failed": `"outcome":"failed","error":"x","retry_in_s":30000000`, "released": `"outcome":"released","retry_in_s":30000000`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup(t, stages.Stage{Name: "first", Work: echo, MaxAttempts: 2})
			worker, task := s.register("key-1"), s.submit("a source")
			if s.report("key-1", worker, s.claim("key-1", worker, "first").Token, outcome) {
				t.Fatal("the claim was lost")
			}
			got, err := s.Get(t.Context(), task)
			if err != nil {
				t.Fatal(err)
			}
			if at := got.Stages[0].RunAt; at == nil || time.Until(*at) > time.Hour+time.Minute {
				t.Errorf("the next attempt is at %v", at)
			}
		})
	}
}
