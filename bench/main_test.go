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

	"github.com/google/go-cmp/cmp"

	"github.com/cuelight/cuelight/bench/report"
	"github.com/cuelight/cuelight/bench/scenario"
	"github.com/cuelight/cuelight/bench/system/cuelight"
)

func TestPlan_FullAndOnceMeasureEverySystem(t *testing.T) {
	t.Parallel()
	for _, m := range []mode{full, quick, once, held} {
		used := map[string]bool{}
		for _, g := range plan(m) {
			if g.Rounds < 1 || len(g.Runs) == 0 {
				t.Errorf("%s: a group of %d rounds with %d runs", m, g.Rounds, len(g.Runs))
			}
			for _, r := range g.Runs {
				used[r.SystemName()] = true
				if isFloor := slices.Contains(r.Scenario.Names, "floor"); isFloor != (r.System == nil) {
					t.Errorf("%s: %s has system %q", m, r.Scenario.Names[0], r.SystemName())
				}
			}
		}
		for _, s := range systems {
			if !used[s.Name()] && (m == full || m == once) {
				t.Errorf("%s: %s is not measured", m, s.Name())
			}
		}
	}
}

func TestPlan_OnceModeMeasuresEverything(t *testing.T) {
	t.Parallel()
	named := func(m mode) (names []string) {
		for _, g := range plan(m) {
			for _, r := range g.Runs {
				names = append(names, r.Scenario.Names...)
			}
		}
		return names
	}
	for _, m := range []mode{full, quick, held} {
		for _, name := range named(m) {
			if !slices.Contains(named(once), name) {
				t.Errorf("%s measures %s, which -once does not", m, name)
			}
		}
	}
}

func TestSelectFrom_FiltersAGroup(t *testing.T) {
	t.Parallel()
	var p planner
	p.group(3)
	p.add(scenario.E2E(1, 0), cuelight.Local)
	p.add(scenario.Drain(1), cuelight.Local)
	p.add(scenario.Commits(1, 1, 0))
	g := p.groups[0]
	for _, test := range []struct {
		o    options
		want int
	}{
		{options{}, 3},
		{options{only: []string{"e2e"}}, 1},
		{options{only: []string{"hop"}}, 1}, // a figure of E2E
		{options{only: []string{"drain", "floor"}}, 2},
		{options{systems: []string{"cuelight"}}, 3},
		{options{systems: []string{"another"}}, 1},
		{options{only: []string{"e2e"}, systems: []string{"another"}}, 0},
	} {
		if got := test.o.selectFrom(g); len(got.Runs) != test.want || got.Rounds != 3 {
			t.Errorf("%+v: %d runs in %d rounds, want %d in 3", test.o, len(got.Runs), got.Rounds, test.want)
		}
	}
	if got := (options{rounds: 1}).selectFrom(g); got.Rounds != 1 {
		t.Errorf("%d rounds, want 1", got.Rounds)
	}
}

func TestParseOptions_ReadsAndChecksFlags(t *testing.T) {
	t.Parallel()
	o, err := parseOptions([]string{
		"-quick", "-rounds", "2", "-only", "e2e, floor", "-systems", "cuelight", "-dir", "d", "-out", "", "-set", "a=1,b=2",
	}, io.Discard)
	must(t, err)
	want := options{
		mode: quick, rounds: 2, only: []string{"e2e", "floor"}, systems: []string{"cuelight"}, dir: "d",
		settings: []string{"a=1", "b=2"},
	}
	if diff := cmp.Diff(want, o, cmp.AllowUnexported(options{})); diff != "" {
		t.Error(diff)
	}
	if o, err = parseOptions([]string{"-against", "HEAD~1"}, io.Discard); err != nil || o.against != "HEAD~1" {
		t.Errorf("%+v, %v", o, err)
	}
	o, err = parseOptions(nil, io.Discard)
	if err != nil || o.mode != full || o.dir == "" || !strings.HasSuffix(o.out, filepath.Join("bench", "results")) {
		t.Errorf("without flags: %+v, %v", o, err)
	}
	for args, want := range map[string]string{
		"-quick -once":          "exclude each other",
		"-against a -systems b": "Cuelight alone",
		"-only e2e,nothing":     `unknown scenario "nothing"`,
		"-systems other":        `unknown system "other"`,
		"-rounds -1":            "negative",
		"something":             "no arguments",
		"-frequency 4":          "not defined",
		"-only e2e -only e3e ":  `unknown scenario "e3e"`,
	} {
		var text bytes.Buffer
		if _, err := parseOptions(strings.Fields(args), &text); err == nil || !strings.Contains(text.String(), want) {
			t.Errorf("%s: %v, prints %s", args, err, text.String())
		}
	}
}

func TestRun_WritesResultAndSummary(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	server.start(t) // skips without PostgreSQL
	out := filepath.Join(t.TempDir(), "results")
	o := options{
		mode: quick, rounds: 1, only: []string{"notify", "drain"}, systems: []string{"cuelight"}, dir: defaultDir, out: out,
	}
	var text bytes.Buffer
	must(t, run(t.Context(), o, &text))

	files, err := filepath.Glob(filepath.Join(out, "*-quick.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("results are %v, %v", files, err)
	}
	r, err := report.Read(files[0])
	must(t, err)
	if f, ok := r.Find(report.Key{Scenario: "drain", System: "cuelight", Case: "tasks=5000"}); !ok || len(f.Rounds) != 1 {
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
}

func TestRun_OnceModeBuildsTheDaemonAndTranscodes(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	server.start(t)
	out := filepath.Join(t.TempDir(), "results")
	o := options{mode: once, only: []string{"idle_daemon", "waiting_workers", "transcode"}, dir: defaultDir, out: out}
	var text bytes.Buffer
	must(t, run(t.Context(), o, &text))
	files, err := filepath.Glob(filepath.Join(out, "*-once.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("results are %v, %v", files, err)
	}
	r, err := report.Read(files[0])
	must(t, err)
	for _, name := range []string{"ffmpeg", "ffprobe"} {
		if _, err := exec.LookPath(name); err != nil && os.Getenv("CI") == "" {
			t.Skip(err)
		}
	}
	f, ok := r.Find(report.Key{Scenario: "idle_daemon", System: "cuelight", Case: "queries"})
	if !ok || f.Median() <= 0 || f.Median() > 100 {
		t.Errorf("queries of the daemon are %+v", f)
	}
	f, ok = r.Find(report.Key{Scenario: "waiting_workers", System: "cuelight", Case: "workers=20,memory"})
	if !ok || f.Median() <= 0 || f.Median() > 500 {
		t.Errorf("memory of the daemon with waiting workers is %+v", f)
	}
	for _, name := range []string{"cuelight", "ffmpeg_bare"} {
		for _, of := range []string{"cpu", "wall"} {
			f, ok := r.Find(report.Key{Scenario: "transcode", System: name, Case: "clip=generated_640x360p25_1s," + of})
			if !ok || f.Median() <= 0 {
				t.Errorf("%s of the transcode by %s is %+v", of, name, f)
			}
		}
	}
	if len(r.Skipped) > 0 {
		t.Errorf("skipped: %v", r.Skipped)
	}
	if strings.Contains(text.String(), "target") {
		t.Errorf("a once run printed targets:\n%s", text.String())
	}
	if _, err := os.Stat(filepath.Join(out, "latest.md")); !os.IsNotExist(err) {
		t.Errorf("latest.md exists: %v", err)
	}
}

func TestRun_WritesNothingWhenInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	server.start(t)
	out := filepath.Join(t.TempDir(), "results")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := options{mode: full, only: []string{"floor"}, dir: defaultDir, out: out}
	err := run(ctx, o, writer(func(text string) {
		if strings.Contains(text, "commit/floor/idle") {
			cancel()
		}
	}))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("a result exists: %v", err)
	}
}

type writer func(text string)

// Write calls w with the text.
func (w writer) Write(b []byte) (int, error) {
	w(string(b))
	return len(b), nil
}

func TestCompare_MeasuresBothRevisions(t *testing.T) {
	if testing.Short() {
		t.Skip("builds two programs")
	}
	server.start(t)
	if err := exec.Command("git", "rev-parse", "HEAD").Run(); err != nil {
		t.Skip("this is no git checkout, or one of another user: ", err)
	}
	o := options{mode: once, rounds: 1, against: "HEAD", only: []string{"drain"}}
	var err error
	o.dir, err = os.MkdirTemp(defaultDir, "cuelight-test-")
	must(t, err)
	defer os.Remove(o.dir)
	must(t, os.Chmod(o.dir, os.ModeSticky|0o777)) // for the server's account
	var text bytes.Buffer
	must(t, compare(t.Context(), o, &text))
	for _, want := range []string{
		"| figure", "| HEAD", "now / HEAD",
		"| drain | tasks=200",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, text.String())
		}
	}
	if left, err := os.ReadDir(o.dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

func TestCompare_SaysThatThereIsNoSuchRevision(t *testing.T) {
	t.Parallel()
	err := compare(t.Context(), options{mode: once, against: "no-such-revision", dir: t.TempDir()}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "check out no-such-revision") {
		t.Errorf("error is %v", err)
	}
}
