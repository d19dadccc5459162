package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestCompareStreams_FindsGapsAndRepetitions(t *testing.T) {
	t.Parallel()
	ids := []int64{10, 20, 30, 40}
	for name, test := range map[string]struct {
		from     int64
		received []int64
		ok       bool
	}{
		"all":                     {0, []int64{10, 20, 30, 40}, true},
		"after an event":          {20, []int64{30, 40}, true},
		"from between two events": {25, []int64{30}, true},
		"none":                    {40, nil, true},
		"a gap":                   {0, []int64{10, 30, 40}, false},
		"a gap at the start":      {0, []int64{20, 30, 40}, false},
		"another event":           {0, []int64{10, 21, 30}, false},
		"twice":                   {0, []int64{10, 20, 20}, false},
		"out of order":            {0, []int64{20, 10}, false},
	} {
		c := streamCount{From: test.from, Last: test.from}
		var err error
		for _, id := range test.received {
			err = errors.Join(err, c.add(id))
		}
		if mismatches := compareStreams(ids, []streamCount{c}); (len(mismatches) == 0 && err == nil) != test.ok {
			t.Errorf("%s: %v, %v", name, mismatches, err)
		}
	}
}

func TestSummary_IsCorrectOnlyWithoutErrors(t *testing.T) {
	t.Parallel()
	correct := summary{observation: observation{Received: 1, Streams: 1}}
	if !correct.isCorrect() {
		t.Errorf("%+v", correct)
	}
	for _, change := range []func(*summary){
		func(s *summary) { s.Received = 0 },
		func(s *summary) { s.Errors = 1 },
		func(s *summary) { s.DaemonErrors = []string{"an error"} },
	} {
		s := correct
		if change(&s); s.isCorrect() {
			t.Errorf("%+v", s)
		}
	}
}

func TestSummary_LimitsGrowthOfWaitsAndMemory(t *testing.T) {
	t.Parallel()
	phases := []phase{
		{waits: []float64{10}, resident: 100 << 20},
		{waits: []float64{14}, resident: 140 << 20, withClients: true},
		{waits: []float64{10}, resident: 140 << 20},
		{waits: []float64{14}, resident: 120 << 20, withClients: true},
	}
	s := summarize(phases, observation{})
	if !s.isWithin(1.5) || s.isWithin(1.3) || s.Memory.Ratio != 1.4 || s.WaitP99.Ratio != 1.4 {
		t.Errorf("%+v", s)
	}
	for _, change := range []func(p *phase){
		func(p *phase) { p.waits = []float64{100} },
		func(p *phase) { p.resident = 200 << 20 },
		func(p *phase) { p.waits = nil },
	} {
		changed := append([]phase{}, phases...)
		for i := range changed {
			if changed[i].withClients {
				change(&changed[i])
			}
		}
		if s := summarize(changed, observation{}); s.isWithin(1.5) {
			t.Errorf("%+v", s)
		}
	}
}

// This test does not check the growth, since other tests run at the same time.
func TestRun_ClientsOfARealDaemonReceiveEveryEvent(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a quarter of a minute")
	}
	if _, err := exec.LookPath("ffmpeg"); err != nil && os.Getenv("CI") == "" {
		t.Skip("ffmpeg is not installed")
	}
	program := filepath.Join(t.TempDir(), "cuelight")
	if err := proofkit.BuildDaemon(t.Context(), program); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	sum, err := run(t.Context(), options{
		program: program, pairs: 1, phase: 3 * time.Second, warmup: time.Second, streams: 60, rate: 20, tasksPerSecond: 10,
	}, &out)
	if errors.Is(err, postgres.ErrNotInstalled) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	sum.DaemonErrors = nil // on a busy machine the daemon may warn
	if err != nil || !sum.isCorrect() || sum.Requests == 0 {
		t.Errorf("%+v, %v\n%s", sum, err, &out)
	}
	t.Log(out.String())
}
