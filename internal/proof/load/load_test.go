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
)

func TestMain(m *testing.M) {
	if text := os.Getenv(crowdEnv); text != "" {
		os.Exit(crowdMain(text))
	}
	goleak.VerifyTestMain(m)
}

func TestAGapOrARepetitionIsFound(t *testing.T) {
	t.Parallel()
	truth := []int64{10, 20, 30, 40}
	for name, c := range map[string]struct {
		from int64
		told []int64
		ok   bool
	}{
		"all":                {0, []int64{10, 20, 30, 40}, true},
		"from an event on":   {20, []int64{30, 40}, true},
		"from between":       {25, []int64{30}, true},
		"none":               {40, nil, true},
		"a gap":              {0, []int64{10, 30, 40}, false},
		"a gap at the start": {0, []int64{20, 30, 40}, false},
		"something else":     {0, []int64{10, 21, 30}, false},
		"twice":              {0, []int64{10, 20, 20}, false},
		"out of order":       {0, []int64{20, 10}, false},
	} {
		a := account{From: c.from, Last: c.from}
		var err error
		for _, id := range c.told {
			err = errors.Join(err, a.add(id))
		}
		if wrong := compare(truth, []account{a}); (len(wrong) == 0 && err == nil) != c.ok {
			t.Errorf("%s: %v, %v", name, wrong, err)
		}
	}
}

func TestASummaryIsSoundOnlyIfNothingIsWrong(t *testing.T) {
	t.Parallel()
	sound := summary{Told: 1, Streams: 1}
	if !sound.sound() {
		t.Errorf("%+v", sound)
	}
	for _, spoil := range []func(*summary){
		func(s *summary) { s.Told = 0 },
		func(s *summary) { s.Gaps = 1 },
		func(s *summary) { s.Behind = 1 },
		func(s *summary) { s.Resyncs = 1 },
		func(s *summary) { s.Failed = 1 },
		func(s *summary) { s.Faulty = 1 },
		func(s *summary) { s.Logged = []string{"it broke"} },
	} {
		s := sound
		if spoil(&s); s.sound() {
			t.Errorf("%+v", s)
		}
	}
}

func TestTheCrowdMayCostSoMuchAndNoMore(t *testing.T) {
	t.Parallel()
	phases := []phase{
		{own: []float64{10}, other: []float64{4}, resident: 100 << 20},
		{own: []float64{14}, other: []float64{5}, resident: 140 << 20, crowd: true},
		{own: []float64{10}, other: []float64{4}, resident: 140 << 20},
		{own: []float64{14}, other: []float64{5}, resident: 120 << 20, crowd: true},
	}
	if s := summarise(phases); !s.within(1.5) || s.within(1.3) || s.Memory.Ratio != 1.4 || s.OwnP99.Ratio != 1.4 || s.OtherP99.Ratio != 1.25 {
		t.Errorf("%+v", s)
	}
	for _, spoil := range []func(p *phase){
		func(p *phase) { p.own = []float64{100} },
		func(p *phase) { p.other = []float64{100} },
		func(p *phase) { p.resident = 200 << 20 },
		func(p *phase) { p.own, p.other = nil, nil },
	} {
		spoilt := append([]phase{}, phases...)
		for i := range spoilt {
			if spoilt[i].crowd {
				spoil(&spoilt[i])
			}
		}
		if s := summarise(spoilt); s.within(1.5) {
			t.Errorf("%+v", s)
		}
	}
}

// Whether the crowd costs too much is not asked here, where other tests run beside.
func TestACrowdIsToldEverythingByARealDaemon(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a quarter of a minute")
	}
	if _, err := exec.LookPath("ffmpeg"); err != nil && os.Getenv("CI") == "" {
		t.Skip("there is no ffmpeg on this machine")
	}
	program := filepath.Join(t.TempDir(), "cuelight")
	if out, err := exec.Command("go", "build", "-o", program, "../../../cmd/cuelight").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var out strings.Builder
	sum, err := run(t.Context(), plan{
		program: program, pairs: 1, phase: 3 * time.Second, settle: time.Second, streams: 60, pages: 6, rate: 20, own: 5, other: 10,
	}, &out)
	if errors.Is(err, postgres.ErrNotInstalled) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	sum.Logged = nil // on a busy machine it may have had reason to warn
	if err != nil || !sum.sound() || sum.Requests == 0 || sum.Changes == 0 {
		t.Errorf("%+v, %v\n%s", sum, err, &out)
	}
	t.Log(out.String())
}
