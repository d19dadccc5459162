package web_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// divide makes so many parts of the transcode of a new task. It claims three, completes the first, and reports that the
// second is half done.
func (b *testServer) divide(parts int) store.ID {
	b.t.Helper()
	id, e := b.submit("/film.mkv"), engine.New(b.pool, b.Graph())
	b.exec(`update tasks set ingest_status = 'completed', metadata_status = 'completed' where id = $1`, id)
	worker, err := e.RegisterWorker(b.t.Context(), store.Worker{Host: "studio", PID: 7})
	if err != nil {
		b.t.Fatal(err)
	}
	exchange := func(free int, reports ...engine.Report) []engine.Claim {
		b.t.Helper()
		out, err := e.Exchange(b.t.Context(), engine.ExchangeRequest{
			Worker: worker, Reports: reports, FreeSlots: []int{0, 1, 0, 0, 0, free},
			ClaimFrom: []bool{1: true, 5: true},
		})
		if err != nil {
			b.t.Fatal(err)
		}
		return out.Claims
	}
	division := engine.Report{Task: id, Stage: 1, Token: exchange(0)[0].Token, Outcome: engine.Divided}
	for range parts {
		division.Parts = append(division.Parts, json.RawMessage(`{}`))
	}
	claims := exchange(3, division)
	exchange(0, engine.Report{Task: id, Stage: 1, Part: claims[0].Part, Token: claims[0].Token, Outcome: engine.Completed})
	_, err = e.Heartbeat(b.t.Context(), engine.HeartbeatRequest{Worker: worker, Running: []store.Running{
		{Task: id, Stage: "transcode", Part: 2, Parts: parts, Token: claims[1].Token, Attempt: 1, Percent: 50, Speed: 2},
	}})
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

func TestTask_HasTheProgressOfAllParts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.divide(250)
	var task struct {
		Progress []struct {
			Stage                            string
			Parts, Completed, Running, Hosts int
			Percent, Speed                   float64
			ETA                              *float64 `json:"eta_s"`
			Retrying, Dead                   *int
		}
		Parts []struct{ Part int }
	}
	b.get(api+"/tasks/"+id.String()).wantStatus(http.StatusOK, &task)
	if len(task.Progress) != 1 || len(task.Parts) != 250 {
		t.Fatalf("it has %d parts and the progress %+v", len(task.Parts), task.Progress)
	}
	p := task.Progress[0]
	if p.Stage != "transcode" || p.Parts != 250 || p.Completed != 1 || p.Running != 2 || p.Hosts != 1 || p.Percent != 0.6 ||
		p.Speed != 2 || p.ETA == nil || *p.Retrying != 0 || *p.Dead != 0 {
		t.Errorf("the progress is %+v", p)
	}
	var plain map[string]any
	b.get(api+"/tasks/"+b.submit("/b.mkv").String()).wantStatus(http.StatusOK, &plain)
	if _, ok := plain["progress"]; ok {
		t.Errorf("a task whose stages are not divided has the progress %v", plain["progress"])
	}
}

func TestRetry_KeepsPartsUnlessItIsFresh(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.divide(4)
	for body, want := range map[string]int{`{"from": "transcode", "fresh": false}`: 4, `{"from": "transcode"}`: 4} {
		b.post(api+"/tasks/"+id.String()+"/retry", body).wantStatus(http.StatusOK, nil)
		if parts, err := b.Parts(t.Context(), id); err != nil || len(parts) != want || parts[0].Status != store.StatusCompleted {
			t.Errorf("after %s there are %d parts, %v", body, len(parts), err)
		}
	}
	b.post(api+"/tasks/"+id.String()+"/retry", `{"from": "transcode", "fresh": true}`).wantStatus(http.StatusOK, nil)
	if parts, err := b.Parts(t.Context(), id); err != nil || len(parts) != 0 {
		t.Errorf("after a fresh retry there are %d parts, %v", len(parts), err)
	}
	checkRequestAgainstOpenAPI(t, "POST", api+"/tasks/"+id.String()+"/retry", `{"from": "transcode", "fresh": true}`)
}

func TestRetry_RefusesRenditionsThatCannotBeKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := api + "/tasks/" + b.submit("/a.mkv").String() + "/retry"
	for _, body := range []string{`{"renditions": [720]}`, `{"from": "publish", "renditions": [720]}`} {
		if text := string(b.post(path, body).body); !strings.Contains(text, "renditions: ") {
			t.Errorf("%s is answered with %s", body, text)
		}
	}
	checkRequestAgainstOpenAPI(t, "POST", path, `{"renditions": [720]}`)
}
