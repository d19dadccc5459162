package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/bench/report"
	"github.com/cuelight/cuelight/bench/result"
	"github.com/cuelight/cuelight/bench/scenario"
)

var modes = []string{modeFull, modeQuick, modeOnce}

func TestPlan_UsesEverySystem(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		part := map[string]bool{}
		for _, g := range plan(mode) {
			if g.rounds < 1 || len(g.entries) == 0 {
				t.Errorf("%s: a group of %d rounds with %d scenarios", mode, g.rounds, len(g.entries))
			}
			for _, e := range g.entries {
				for _, name := range e.contestants {
					part[name] = true
					if find(contestants(), name) == nil {
						t.Errorf("%s: there is no contestant %q", mode, name)
					}
				}
			}
		}
		for _, c := range contestants() {
			// To see whether polling works the faster one is enough.
			if mode == modeQuick || mode == modeOnce && c.Name() == "polling_5s" {
				continue
			}
			if !part[c.Name()] {
				t.Errorf("%s: %s takes part in nothing", mode, c.Name())
			}
		}
	}
}

func TestPlan_OnceModeMeasuresEverything(t *testing.T) {
	t.Parallel()
	named := func(mode string) []string {
		var names []string
		for _, g := range plan(mode) {
			for _, e := range g.entries {
				names = append(names, e.scenario.Names()...)
			}
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	once := named(modeOnce)
	for _, mode := range modes {
		for _, name := range named(mode) {
			if !slices.Contains(once, name) {
				t.Errorf("%s measures %s, which -once does not", mode, name)
			}
		}
	}
}

func TestSelectRuns_FiltersAGroup(t *testing.T) {
	t.Parallel()
	g := group{rounds: 3, entries: []entry{
		{scenario.E2E{Samples: 1, Slots: 5}, ours()},
		{scenario.Drain{Tasks: 1}, ours()},
		{scenario.Notifies{Tasks: 1}, nil},
	}}
	for _, test := range []struct {
		o    options
		want int
	}{
		{options{}, 3},
		{options{only: []string{"e2e"}}, 1},
		{options{only: []string{"hop"}}, 1}, // comes from the same tasks
		{options{only: []string{"drain", "notifies"}}, 2},
		{options{contestants: []string{"cuelight"}}, 3},
		{options{contestants: []string{"another"}}, 1},
		{options{only: []string{"e2e"}, contestants: []string{"another"}}, 0},
	} {
		if got := heats(g, test.o); len(got.Runs) != test.want || got.Rounds != 3 {
			t.Errorf("%+v: %d heats in %d rounds, want %d in 3", test.o, len(got.Runs), got.Rounds, test.want)
		}
	}
	if got := heats(g, options{rounds: 1}); got.Rounds != 1 {
		t.Errorf("%d rounds, want 1", got.Rounds)
	}
}

func TestParseOptions_ReadsAndChecksFlags(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"-quick", "-rounds", "2", "-only", "e2e, floor", "-contestants", "cuelight", "-dir", "d", "-out", "", "-cpuprofile", "p", "-cuelight", "c", "-media", "m", "-report", "r"}, io.Discard)
	must(t, err)
	want := options{
		mode: modeQuick, rounds: 2, only: []string{"e2e", "floor"}, contestants: []string{"cuelight"}, dir: "d", profile: "p",
		cuelight: "c", media: "m", report: "r",
	}
	if !equal(o, want) {
		t.Errorf("%+v, want %+v", o, want)
	}
	if o, err := parse(nil, io.Discard); err != nil || o.mode != modeFull || o.dir == "" || !strings.HasSuffix(o.out, filepath.Join("bench", "results")) {
		t.Errorf("without flags: %+v, %v", o, err)
	}
	for args, says := range map[string]string{
		"-quick -once":         "two things",
		"-only e2e,nothing":    `no scenario "nothing"`,
		"-contestants nobody":  `no contestant "nobody"`,
		"-rounds -1":           "negative",
		"something":            "no arguments",
		"-frequency 4":         "not defined",
		"-only e2e -only e3e ": `no scenario "e3e"`,
	} {
		var text bytes.Buffer
		if _, err := parse(strings.Fields(args), &text); err == nil || !strings.Contains(text.String(), says) {
			t.Errorf("%s: %v, and says %s", args, err, text.String())
		}
	}
}

func equal(a, b options) bool {
	return a.mode == b.mode && a.rounds == b.rounds && slices.Equal(a.only, b.only) &&
		slices.Equal(a.contestants, b.contestants) && a.dir == b.dir && a.out == b.out && a.profile == b.profile &&
		a.cuelight == b.cuelight && a.media == b.media && a.report == b.report
}

func TestModulePath_ReadsGoMod(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string]string{
		".": "github.com/cuelight/cuelight/bench", "..": "github.com/cuelight/cuelight", t.TempDir(): "",
	} {
		if got := module(dir); got != want {
			t.Errorf("%s: %q, want %q", dir, got, want)
		}
	}
}

func TestMeasure_WritesResultAndSummary(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	server.start(t) // skips where there is none
	out := filepath.Join(t.TempDir(), "results")
	profile := filepath.Join(t.TempDir(), "cpu")
	o := options{mode: modeQuick, rounds: 1, only: []string{"notify", "drain"}, contestants: ours(), dir: defaultDir(), out: out, profile: profile}
	var text bytes.Buffer
	must(t, profiled(o.profile, func() error { return run(t.Context(), o, &text) }))

	files, err := filepath.Glob(filepath.Join(out, "*-quick.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("results are %v, %v", files, err)
	}
	r, err := result.Read(files[0])
	must(t, err)
	if f, ok := r.Find(result.Key{Scenario: "drain", System: "cuelight", Case: "tasks=5000"}); !ok || len(f.Rounds) != 1 {
		t.Errorf("drain is %+v", f)
	}
	if r.DurationSeconds <= 0 || r.Settings["postgres"] == "" || r.Settings["cuelight"] == "" || len(r.Skipped) > 0 {
		t.Errorf("took %v, settings %v, skipped %v", r.DurationSeconds, r.Settings, r.Skipped)
	}
	if _, err := os.Stat(strings.TrimSuffix(files[0], "json") + "md"); err != nil {
		t.Error(err)
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if last := lines[len(lines)-1]; last != string(report.Summary(r)) || !json.Valid([]byte(last)) {
		t.Errorf("the last line is %s", last)
	}
	if info, err := os.Stat(profile); err != nil || info.Size() == 0 {
		t.Errorf("profile: %v, %v", info, err)
	}
}

func TestMeasure_OnceModeBuildsTheDaemonAndTranscodes(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	server.start(t)
	out := filepath.Join(t.TempDir(), "results")
	o := options{mode: modeOnce, only: []string{"idle_daemon", "transcode"}, dir: defaultDir(), out: out}
	var text bytes.Buffer
	must(t, run(t.Context(), o, &text))
	files, err := filepath.Glob(filepath.Join(out, "*-once.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("results are %v, %v", files, err)
	}
	r, err := result.Read(files[0])
	must(t, err)
	for _, name := range []string{"ffmpeg", "ffprobe"} {
		if _, err := exec.LookPath(name); err != nil && os.Getenv("CI") == "" {
			t.Skip(err)
		}
	}
	if f, ok := r.Find(result.Key{Scenario: "idle_daemon", System: "cuelight", Case: "queries"}); !ok || f.Median() <= 0 || f.Median() > 100 {
		t.Errorf("a daemon's queries are %+v", f)
	}
	if len(r.ForScenario("transcode")) != 9 || len(r.Skipped) > 0 {
		t.Errorf("%d figures of transcodes; skipped: %v", len(r.ForScenario("transcode")), r.Skipped)
	}
	if strings.Contains(text.String(), "to reach") {
		t.Errorf("it says\n%s", text.String())
	}
	if _, err := os.Stat(filepath.Join(out, "latest.md")); !os.IsNotExist(err) {
		t.Errorf("it is the latest: %v", err)
	}
	text.Reset()
	must(t, rewrite(files[0], &text))
	if want := strings.TrimSuffix(files[0], "json") + "md\n"; text.String() != want {
		t.Errorf("it wrote %q anew, want %q", text.String(), want)
	}
}

func TestOptions_IsCompleteRun(t *testing.T) {
	t.Parallel()
	if !(options{mode: modeFull}).whole() {
		t.Error("a full run is not")
	}
	for _, o := range []options{
		{mode: modeQuick}, {mode: modeOnce}, {mode: modeFull, rounds: 1}, {mode: modeFull, only: []string{"e2e"}}, {mode: modeFull, contestants: ours()},
	} {
		if o.whole() {
			t.Errorf("%+v is", o)
		}
	}
}

func TestMeasure_WritesNothingWhenInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	server.start(t)
	out := filepath.Join(t.TempDir(), "results")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := options{mode: modeFull, only: []string{"floor"}, dir: defaultDir(), out: out}
	err := run(ctx, o, writer(func(text string) {
		if strings.Contains(text, "commit/floor/idle") {
			cancel()
		}
	}))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("there is a result: %v", err)
	}
}

type writer func(text string)

func (w writer) Write(b []byte) (int, error) {
	w(string(b))
	return len(b), nil
}
