package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/bench/result"
)

func verdict(t *testing.T, r *result.Result, figure string) Verdict {
	t.Helper()
	for _, v := range Targets(r) {
		if strings.HasPrefix(v.Figure, figure) {
			return v
		}
	}
	t.Fatalf("there is no target for %q", figure)
	return Verdict{}
}

func put(r *result.Result, scenario, contestant, of, unit string, rounds ...result.Round) {
	r.Add(result.Key{Scenario: scenario, Contestant: contestant, Case: of}, unit, rounds...)
}

func TestATargetIsReachedAtItsBound(t *testing.T) {
	t.Parallel()
	for ms, want := range map[float64]State{1.4: Yes, 1.5: Yes, 1.5004: No} {
		r := result.New("once")
		put(r, "e2e", ours, "idle", "ms", result.Value(ms))
		put(r, "commits5", floor, "idle", "ms", result.Value(1))
		if v := verdict(t, r, "idle end-to-end p50 / five"); v.State != want || v.Target != "≤ 1.5" {
			t.Errorf("%v: %+v, want %s", ms, v, want)
		}
	}
	for tasks, want := range map[float64]State{19.9: No, 20: Yes, 21: Yes} {
		r := result.New("once")
		put(r, "drain", ours, "tasks=5000", "tasks/s", result.Value(tasks))
		put(r, "drain", "river_tx", "tasks=5000", "tasks/s", result.Value(1))
		if v := verdict(t, r, "tasks/s drained / River's, transactional"); v.State != want || v.Target != "≥ 20" {
			t.Errorf("%v: %+v, want %s", tasks, v, want)
		}
	}
}

func TestAMissDoesNotLookLikeTheBound(t *testing.T) {
	t.Parallel()
	r := result.New("once")
	put(r, "e2e", ours, "idle", "ms", result.Value(1.5004))
	put(r, "commits5", floor, "idle", "ms", result.Value(1))
	if v := verdict(t, r, "idle end-to-end p50 / five"); strings.TrimSpace(v.Reached) != "1.5004" {
		t.Errorf("reached %q", v.Reached)
	}
}

func TestAnotherCaseIsNotTakenForTheOneMissing(t *testing.T) {
	t.Parallel()
	r := result.New("once")
	put(r, "e2e", ours, "commit_delay=2ms", "ms", result.Value(13))
	put(r, "commits5", floor, "tight", "ms", result.Value(1))
	put(r, "commits5", floor, "commit_delay=2ms", "ms", result.Value(12))
	put(r, "grown", ours, "finished=0", "tasks/s", result.Value(1))
	put(r, "grown", ours, "finished=100000", "tasks/s", result.Value(1))
	for _, figure := range []string{"idle end-to-end p50 / five", "idle end-to-end p50 / River", "tasks/s with 1,000,000"} {
		if v := verdict(t, r, figure); v.State != NotMeasured {
			t.Errorf("%+v, want not measured", v)
		}
	}
	if v := verdict(t, r, "the same with commits made slow"); v.State != Yes || v.Reached != "1.08" {
		t.Errorf("%+v, want 1.08", v)
	}
}

func TestPeersAreComparedOverAsManyTasks(t *testing.T) {
	t.Parallel()
	r := result.New("once")
	put(r, "drain", ours, "tasks=5000", "tasks/s", result.Value(300))
	put(r, "drain", ours, "tasks=50000", "tasks/s", result.Value(900))
	put(r, "drain", "graphile", "tasks=5000", "tasks/s", result.Value(10))
	put(r, "drain", "river_tx", "tasks=7", "tasks/s", result.Value(1))
	if v := verdict(t, r, "tasks/s drained / Graphile"); v.Reached != "30.0" || v.Note != "of 5k tasks" {
		t.Errorf("%+v, want 300 / 10", v)
	}
	if v := verdict(t, r, "tasks/s drained / River's, transactional"); v.State != NotMeasured {
		t.Errorf("%+v, though they had no number of tasks in common", v)
	}
}

func TestLatencyUnderALoadThatIsNotTakenReachesNothing(t *testing.T) {
	t.Parallel()
	r := result.New("once")
	put(r, "rate", ours, "rate=400", "ms", result.Of(append(make([]float64, 150), 1, 2, 3, 4)))
	put(r, "rate_kept", ours, "rate=400", "share", result.Value(1))
	if v := verdict(t, r, "end-to-end p99 at 400"); v.State != Yes || v.Reached != "2.47 ms" {
		t.Errorf("%+v", v)
	}
	f, _ := look(r, "rate_kept", ours, "rate=400")
	f.Rounds[0].Value = 0.98
	if v := verdict(t, r, "end-to-end p99 at 400"); v.State != No || !strings.Contains(v.Note, "did not keep up") {
		t.Errorf("%+v, want no", v)
	}
}

func TestAPercentileThatNobodySawReachesNothing(t *testing.T) {
	t.Parallel()
	r := result.New("once")
	put(r, "hop_other", ours, "", "ms", result.Of(upTo(200)))
	put(r, "notify", floor, "idle", "ms", result.Of(upTo(99)))
	if v := verdict(t, r, "completion → dependent stage"); v.State != NotMeasured {
		t.Errorf("%+v, want not measured: the floor has 99 samples", v)
	}
	put(r, "e2e", ours, "idle", "ms", result.Of(upTo(99)))
	if s := string(Summary(r)); !strings.Contains(s, `"e2e_p50_ms":50,"e2e_p99_ms":null`) {
		t.Error(s)
	}
}

func upTo(n int) []float64 {
	all := make([]float64, n)
	for i := range all {
		all[i] = float64(i + 1)
	}
	return all
}

func TestAnErrorOfSeveralProcessesIsAMiss(t *testing.T) {
	t.Parallel()
	r := sample()
	r.Skip("processes/cuelight", "error in round 2: deadlock")
	if v := verdict(t, r, "tasks/s with 8 processes"); v.State != No || !strings.Contains(v.Note, "deadlock") {
		t.Errorf("%+v, want no", v)
	}
}

func TestTheWorstClipCounts(t *testing.T) {
	t.Parallel()
	r := result.New("once")
	for clip, s := range map[string]float64{"a": 1.01, "b": 1.2, "c": 1.0} {
		put(r, "transcode", ours, "clip="+clip+",cpu", "CPU s", result.Value(10*s))
		put(r, "transcode", ours, "clip="+clip+",wall", "wall s", result.Value(90))
		put(r, "transcode", "ffmpeg_bare", "clip="+clip+",cpu", "CPU s", result.Value(10))
		put(r, "transcode", "ffmpeg_bare", "clip="+clip+",wall", "wall s", result.Value(1))
	}
	if v := verdict(t, r, "real transcode"); v.State != No || v.Reached != "1.20" || !strings.Contains(v.Note, "b 1.20") {
		t.Errorf("%+v, want 1.20 of b", v)
	}
}

func TestTargetsArePrintedOneToALine(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := PrintTargets(&b, sample()); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Count(b.String(), "\n"), 1+len(targets()); got != want {
		t.Errorf("%d lines, want %d:\n%s", got, want, &b)
	}
}

func TestTheSummaryOfNothingIsNull(t *testing.T) {
	t.Parallel()
	const want = `{"floor5_ms":null,"e2e_p50_ms":null,"e2e_p99_ms":null,"hop_p50_ms":null,"hop_other_process_p99_ms":null,` +
		`"tasks_per_s":null,"river_e2e_p50_ms":null,"river_tasks_per_s":null,"river_fast_tasks_per_s":null,` +
		`"polling_e2e_p50_ms":null,"notifies_per_task":null,"grown_ratio":null}`
	if got := string(Summary(result.New("quick"))); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestTheSummaryHasEachFigureInItsPlace(t *testing.T) {
	t.Parallel()
	r := result.New("quick")
	put(r, "commits5", floor, "idle", "ms", result.Value(1.23456))
	put(r, "commits5", floor, "tight", "ms", result.Value(99))
	put(r, "e2e", ours, "idle", "ms", result.Of(upTo(100)), result.Of(upTo(200)))
	put(r, "e2e", ours, "commit_delay=2ms", "ms", result.Value(99))
	put(r, "hop", ours, "idle", "ms", result.Of([]float64{5, 5, 9}))
	put(r, "hop_other", ours, "", "ms", result.Value(6))
	put(r, "drain", ours, "tasks=50000", "tasks/s", result.Value(21_034.4))
	put(r, "drain", ours, "tasks=5000", "tasks/s", result.Value(99))
	put(r, "e2e", "river_tx", "idle", "ms", result.Value(7))
	put(r, "e2e", "river_default", "idle", "ms", result.Value(99))
	put(r, "drain", "river_tx", "tasks=5000", "tasks/s", result.Value(8))
	put(r, "drain", "river_fast", "tasks=5000", "tasks/s", result.Value(9))
	put(r, "e2e", "polling_5s", "idle", "ms", result.Value(10))
	put(r, "e2e", "polling_1s", "idle", "ms", result.Value(99))
	put(r, "notifies", ours, "", "per task", result.Value(0))
	put(r, "grown", ours, "finished=0", "tasks/s", result.Value(20))
	put(r, "grown", ours, "finished=100000", "tasks/s", result.Value(19))
	const want = `{"floor5_ms":1.235,"e2e_p50_ms":75.5,"e2e_p99_ms":148.5,"hop_p50_ms":5,"hop_other_process_p99_ms":6,` +
		`"tasks_per_s":21030,"river_e2e_p50_ms":7,"river_tasks_per_s":8,"river_fast_tasks_per_s":9,` +
		`"polling_e2e_p50_ms":10,"notifies_per_task":0,"grown_ratio":0.95}`
	got := Summary(r)
	if string(got) != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if !json.Valid(got) || bytes.ContainsRune(got, '\n') {
		t.Error("it is not one line of JSON")
	}
}
