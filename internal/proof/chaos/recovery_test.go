package main

import (
	"testing"
	"time"
)

func TestRecoveries_MeasureFromKillToNextAttempt(t *testing.T) {
	t.Parallel()
	const died = 500 * ms
	for name, c := range map[string]struct {
		also func(*dataBuilder)
		want recovery
	}{
		"by another worker": {func(*dataBuilder) {}, recovery{duration: 500 * ms, undisturbed: true}},
		"after a restart of the server": {func(r *dataBuilder) {
			r.addFault(restartServer, -1, -9*time.Second, -8*time.Second)
		}, recovery{duration: 500 * ms}},
		"long after a restart": {func(r *dataBuilder) {
			r.addFault(restartServer, -1, -20*time.Second, -15*time.Second)
		}, recovery{duration: 500 * ms, undisturbed: true}},
		"with rows locked": {func(r *dataBuilder) {
			r.addFault(lockRows, -1, 600*ms, 700*ms)
		}, recovery{duration: 500 * ms}},
		"with the end hidden": {func(r *dataBuilder) {
			r.addFault(powerLoss, 1, 400*ms, time.Minute)
		}, recovery{duration: 500 * ms, undisturbed: true, hidden: true}},
		"of a remote worker": {func(r *dataBuilder) {
			r.logs[1].worker = workers
		}, recovery{duration: 500 * ms, undisturbed: true, remote: true}},
		"of a remote worker whose coordinator was killed": {func(r *dataBuilder) {
			r.logs[1].worker = workers
			r.addFault(killCoordinator, noWorker, 400*ms, time.Minute)
		}, recovery{duration: 500 * ms, undisturbed: true, hidden: true, remote: true}},
		"of a remote worker long after the kill of a coordinator": {func(r *dataBuilder) {
			r.logs[1].worker = workers
			r.addFault(killCoordinator, noWorker, -10*time.Second, time.Minute)
		}, recovery{duration: 500 * ms, undisturbed: true, remote: true}},
		"by the restarted worker": {func(r *dataBuilder) {
			r.logs[0].worker = 1
		}, recovery{duration: 500 * ms, undisturbed: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := correctRun()
			token := r.executes(1, "ingest", 1, 450*ms, 0, "")
			r.addHistory(token, "ingest", 1, worker2, 900*ms, "expired")
			r.logs[1].killed, r.logs[1].ended = after(died), after(died)
			c.also(r)
			v := r.findings()
			if len(v.violations) != 0 || len(v.recoveries) != 1 || v.recoveries[0] != c.want {
				t.Errorf("%v, %+v; want %+v", v.violations, v.recoveries, c.want)
			}
		})
	}
}

func TestPercentiles_UseOnlyChosenRecoveries(t *testing.T) {
	t.Parallel()
	var all []recovery
	for i := range 200 {
		all = append(all, recovery{duration: time.Duration(200-i) * time.Second, undisturbed: i%2 == 0})
	}
	chosen := milliseconds(all, func(r recovery) bool { return r.undisturbed })
	if p50, p99 := percentile(chosen, 50), percentile(chosen, 99); p50 == nil || *p50 != 100_000 || *p99 != 198_000 {
		t.Errorf("%v, %v", p50, p99)
	}
	if p50 := percentile(nil, 50); p50 != nil {
		t.Errorf("%v", *p50)
	}
}
