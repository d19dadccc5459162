package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func findTarget(t *testing.T, r *Result, figure string) targetResult {
	t.Helper()
	for _, v := range checkTargets(r) {
		if strings.HasPrefix(v.figure, figure) {
			return v
		}
	}
	t.Fatalf("no target for %q", figure)
	return targetResult{}
}

func addRounds(r *Result, scenario, system, caseName, unit string, rounds ...Round) {
	for _, round := range rounds {
		r.Add(Key{scenario, system, caseName}, unit, round)
	}
}

func TestTarget_IsReachedAtItsBound(t *testing.T) {
	t.Parallel()
	for ms, want := range map[float64]string{1.4: reached, 1.5: reached, 1.5004: missed} {
		r := New("quick")
		addRounds(r, "e2e", cuelightSystem, "idle", "ms", FromValue(ms))
		addRounds(r, "commits5", floorSystem, "idle", "ms", FromValue(1))
		if v := findTarget(t, r, "idle end-to-end p50 / five"); v.status != want || v.bound != "≤ 1.5" {
			t.Errorf("%v: %+v, want %s", ms, v, want)
		}
	}
	for tasks, want := range map[float64]string{11.9: missed, 12: reached, 13: reached} {
		r := New("quick")
		addRounds(r, "drain", cuelightSystem, "tasks=5000", "tasks/s", FromValue(tasks))
		addRounds(r, "drain", "river_tx", "tasks=5000", "tasks/s", FromValue(1))
		if v := findTarget(t, r, "tasks/s drained / River's, transactional"); v.status != want || v.bound != "≥ 12" {
			t.Errorf("%v: %+v, want %s", tasks, v, want)
		}
	}
}

func TestTarget_ShowsMoreDigitsForANearMiss(t *testing.T) {
	t.Parallel()
	r := New("quick")
	addRounds(r, "e2e", cuelightSystem, "idle", "ms", FromValue(1.5004))
	addRounds(r, "commits5", floorSystem, "idle", "ms", FromValue(1))
	if v := findTarget(t, r, "idle end-to-end p50 / five"); strings.TrimSpace(v.measured) != "1.5004" {
		t.Errorf("reached %q", v.measured)
	}
}

func TestTarget_UsesOnlyItsOwnCase(t *testing.T) {
	t.Parallel()
	r := New("quick")
	addRounds(r, "e2e", cuelightSystem, "commit_delay=2ms", "ms", FromValue(13))
	addRounds(r, "commits5", floorSystem, "tight", "ms", FromValue(1))
	addRounds(r, "commits5", floorSystem, "commit_delay=2ms", "ms", FromValue(12))
	addRounds(r, "grown", cuelightSystem, "finished=0", "tasks/s", FromValue(1))
	addRounds(r, "grown", cuelightSystem, "finished=100000", "tasks/s", FromValue(1))
	for _, figure := range []string{
		"idle end-to-end p50 / five", "idle end-to-end p50 / River", "tasks/s with 1,000,000",
	} {
		if v := findTarget(t, r, figure); v.status != notMeasured {
			t.Errorf("%+v, want not measured", v)
		}
	}
	if v := findTarget(t, r, "the same with commits made slow"); v.status != reached || v.measured != "1.08" {
		t.Errorf("%+v, want 1.08", v)
	}
}

func TestTarget_ComparesEqualTaskCounts(t *testing.T) {
	t.Parallel()
	r := New("quick")
	addRounds(r, "drain", cuelightSystem, "tasks=5000", "tasks/s", FromValue(300))
	addRounds(r, "drain", cuelightSystem, "tasks=50000", "tasks/s", FromValue(900))
	addRounds(r, "drain", "river_fast", "tasks=5000", "tasks/s", FromValue(10))
	addRounds(r, "drain", "river_tx", "tasks=7", "tasks/s", FromValue(1))
	if v := findTarget(t, r, "tasks/s drained / River's, its fastest"); v.measured != "30.0" || v.note != "tasks=5000" {
		t.Errorf("%+v, want 300 / 10", v)
	}
	if v := findTarget(t, r, "tasks/s drained / River's, transactional"); v.status != notMeasured {
		t.Errorf("%+v, but no common number of tasks", v)
	}
}

func TestTarget_MissesWhenTheRateIsNotSustained(t *testing.T) {
	t.Parallel()
	r := New("quick")
	addRounds(r, "rate", cuelightSystem, "rate=400", "ms", fromSamples(append(make([]float64, 150), 1, 2, 3, 4)))
	addRounds(r, "rate_kept", cuelightSystem, "rate=400", "share", FromValue(1))
	if v := findTarget(t, r, "end-to-end p99 at 400"); v.status != reached || v.measured != "2.47 ms" {
		t.Errorf("%+v", v)
	}
	f, _ := r.Find(Key{"rate_kept", cuelightSystem, "rate=400"})
	f.Rounds[0].Value = 0.98
	if v := findTarget(t, r, "end-to-end p99 at 400"); v.status != missed {
		t.Errorf("%+v, want no", v)
	}
}

func TestTarget_NeedsEnoughSamplesForAPercentile(t *testing.T) {
	t.Parallel()
	r := New("quick")
	addRounds(r, "hop_other", cuelightSystem, "", "ms", fromSamples(numbersUpTo(200)))
	addRounds(r, "notify", floorSystem, "idle", "ms", fromSamples(numbersUpTo(99)))
	if v := findTarget(t, r, "completion → dependent stage"); v.status != notMeasured {
		t.Errorf("%+v, want not measured, because the floor has 99 samples", v)
	}
	addRounds(r, "e2e", cuelightSystem, "idle", "ms", fromSamples(numbersUpTo(99)))
	if s := string(Summary(r)); !strings.Contains(s, `"e2e_p50_ms":50,"e2e_p99_ms":null`) {
		t.Error(s)
	}
}

func TestTarget_ComparesRemoteWorkersWithLocalOnes(t *testing.T) {
	t.Parallel()
	r := New("quick")
	addRounds(r, "start", cuelightSystem, "idle", "ms", fromSamples(numbersUpTo(3)))
	addRounds(r, "start", "cuelight_remote", "idle", "ms", fromSamples(numbersUpTo(7)))
	addRounds(r, "http", "cuelight_remote", "idle", "ms", FromValue(0.5))
	addRounds(r, "start_beyond", "cuelight_remote", "idle", "ms", FromValue(3))
	if v := findTarget(t, r, "submission → start at a waiting remote worker"); v.status != reached || v.measured != "3.00 ms" {
		t.Errorf("%+v, want 3 ms", v)
	}
	addRounds(r, "remote_drain", cuelightSystem, "tasks=200", "tasks/s", FromValue(100))
	addRounds(r, "remote_drain", "cuelight_remote", "tasks=200", "tasks/s", FromValue(79))
	if v := findTarget(t, r, "tasks/s drained by a remote worker"); v.status != missed {
		t.Errorf("%+v, want a miss", v)
	}
	addRounds(r, "waiting_workers", cuelightSystem, "workers=20,queries", "queries/s", FromValue(1))
	if v := findTarget(t, r, "daemon with 1,000 waiting remote workers: queries"); v.status != notMeasured {
		t.Errorf("%+v, but 20 workers waited", v)
	}
}

func numbersUpTo(n int) []float64 {
	all := make([]float64, n)
	for i := range all {
		all[i] = float64(i + 1)
	}
	return all
}

func TestTarget_MissesAfterAnError(t *testing.T) {
	t.Parallel()
	r := sample()
	r.Skip("processes/cuelight", "error in round 2: deadlock")
	if v := findTarget(t, r, "tasks/s with 8 processes"); v.status != missed {
		t.Errorf("%+v, want no", v)
	}
}

func TestTarget_UsesTheWorstClip(t *testing.T) {
	t.Parallel()
	r := New("quick")
	for clip, s := range map[string]float64{"a": 1.01, "b": 1.2, "c": 1.0} {
		addRounds(r, "transcode", cuelightSystem, "clip="+clip+",cpu", "CPU s", FromValue(10*s))
		addRounds(r, "transcode", cuelightSystem, "clip="+clip+",wall", "wall s", FromValue(90))
		addRounds(r, "transcode", "ffmpeg_bare", "clip="+clip+",cpu", "CPU s", FromValue(10))
		addRounds(r, "transcode", "ffmpeg_bare", "clip="+clip+",wall", "wall s", FromValue(1))
	}
	v := findTarget(t, r, "real transcode")
	if v.status != missed || v.measured != "1.20" || v.note != "clip=b,cpu" {
		t.Errorf("%+v, want 1.20 of b", v)
	}
}

func TestPrintTargets_WritesOneLinePerTarget(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := PrintTargets(&b, sample(), true); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Count(b.String(), "\n"), len(targets); got != want {
		t.Errorf("%d lines, want %d:\n%s", got, want, &b)
	}
}

func TestSummary_IsNullWithoutFigures(t *testing.T) {
	t.Parallel()
	const want = `{"floor5_ms":null,"e2e_p50_ms":null,"e2e_p99_ms":null,"hop_p50_ms":null,` +
		`"hop_other_process_p99_ms":null,"tasks_per_s":null,"river_e2e_p50_ms":null,"river_tasks_per_s":null,` +
		`"river_fast_tasks_per_s":null,` +
		`"polling_e2e_p50_ms":null,"notifies_per_task":null,"grown_ratio":null}`
	if got := string(Summary(New("quick"))); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestSummary_HasEveryFigure(t *testing.T) {
	t.Parallel()
	r := New("quick")
	addRounds(r, "commits5", floorSystem, "idle", "ms", FromValue(1.23456))
	addRounds(r, "commits5", floorSystem, "tight", "ms", FromValue(99))
	addRounds(r, "e2e", cuelightSystem, "idle", "ms",
		fromSamples(numbersUpTo(100)), fromSamples(numbersUpTo(200)))
	addRounds(r, "e2e", cuelightSystem, "commit_delay=2ms", "ms", FromValue(99))
	addRounds(r, "hop", cuelightSystem, "", "ms", fromSamples([]float64{5, 5, 9}))
	addRounds(r, "hop_other", cuelightSystem, "", "ms", FromValue(6))
	addRounds(r, "drain", cuelightSystem, "tasks=50000", "tasks/s", FromValue(99))
	addRounds(r, "drain", cuelightSystem, "tasks=5000", "tasks/s", FromValue(21_034.4))
	addRounds(r, "e2e", "river_tx", "idle", "ms", FromValue(7))
	addRounds(r, "e2e", "river_default", "idle", "ms", FromValue(99))
	addRounds(r, "drain", "river_tx", "tasks=5000", "tasks/s", FromValue(8))
	addRounds(r, "drain", "river_fast", "tasks=5000", "tasks/s", FromValue(9))
	addRounds(r, "e2e", "polling_5s", "idle", "ms", FromValue(10))
	addRounds(r, "notifies", cuelightSystem, "", "per task", FromValue(0))
	addRounds(r, "grown", cuelightSystem, "finished=0", "tasks/s", FromValue(20))
	addRounds(r, "grown", cuelightSystem, "finished=100000", "tasks/s", FromValue(19))
	const want = `{"floor5_ms":1.235,"e2e_p50_ms":75.5,"e2e_p99_ms":148.5,"hop_p50_ms":5,"hop_other_process_p99_ms":6,` +
		`"tasks_per_s":21030,"river_e2e_p50_ms":7,"river_tasks_per_s":8,"river_fast_tasks_per_s":9,` +
		`"polling_e2e_p50_ms":10,"notifies_per_task":0,"grown_ratio":0.95}`
	got := Summary(r)
	if string(got) != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if !json.Valid(got) || bytes.ContainsRune(got, '\n') {
		t.Error("the summary is not one line of JSON")
	}
}
