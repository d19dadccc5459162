package main

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"
)

func TestNewPlan_DependsOnlyOnTheSeed(t *testing.T) {
	t.Parallel()
	one, again, other := newPlan(7, 3*time.Minute), newPlan(7, 3*time.Minute), newPlan(8, 3*time.Minute)
	if !reflect.DeepEqual(one, again) {
		t.Error("the same seed gave two plans")
	}
	if reflect.DeepEqual(one, other) {
		t.Error("two seeds gave the same plan")
	}
}

func TestNewPlan_HasEveryFaultInAMinute(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		p := newPlan(seed, time.Minute)
		for _, k := range plannedFaults() {
			if !slices.ContainsFunc(p, func(s step) bool { return s.kind == k }) {
				t.Errorf("seed %d: no %s", seed, k)
			}
		}
	}
}

func TestNewPlan_HasEveryFaultOfRemoteWorkersInAMinute(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		p := newPlan(seed, time.Minute)
		for _, q := range remoteQuotas {
			if !slices.ContainsFunc(p, func(s step) bool { return s.kind == q.kind && isRemote(s.worker) }) {
				t.Errorf("seed %d: no %s of a remote worker", seed, q.kind)
			}
		}
	}
}

func TestNewPlan_LeavesOneWorkerOfEachKindWithoutFaults(t *testing.T) {
	t.Parallel()
	const duration = 4 * time.Minute
	for seed := range uint64(10) {
		p := newPlan(seed, duration)
		for at := time.Duration(0); at < duration; at += 500 * ms {
			disabled, remote, killed := make(map[int][]string), 0, 0
			for _, s := range p {
				if s.at > at || at > s.at+s.duration {
					continue
				}
				if s.kind.disablesWorker() {
					disabled[s.worker] = append(disabled[s.worker], fmt.Sprint(s))
				}
				if s.kind == killCoordinator {
					killed++
				}
			}
			for w := range disabled {
				if isRemote(w) {
					remote++
				}
			}
			if len(disabled)-remote >= workers || remote >= remoteWorkers || killed >= coordinators {
				t.Fatalf("seed %d, %v: %d coordinators killed, %v", seed, at, killed, disabled)
			}
			for w, all := range disabled {
				if len(all) > 1 {
					t.Fatalf("seed %d, %v, worker %d: %v", seed, at, w, all)
				}
			}
		}
	}
}

func TestNewPlan_IsOrderedAndEndsInTime(t *testing.T) {
	t.Parallel()
	for _, seconds := range []time.Duration{1, 5, 20, 59, 90} {
		duration := seconds * time.Second
		last := time.Duration(0)
		for _, s := range newPlan(3, duration) {
			if s.at < last || s.at+s.duration > duration {
				t.Errorf("%v: %s", duration, s)
			}
			last = s.at
			if s.kind.needsWorker() != (s.worker != noWorker) || s.kind.needsProxy() && s.worker == networkedWorker {
				t.Errorf("wrong worker: %s", s)
			}
		}
	}
}

func TestNewPlan_DeletesTasksAllTheTime(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		n := 0
		for _, s := range newPlan(seed, time.Minute) {
			if s.kind == deleteTasks {
				n++
			}
		}
		if n != 8 {
			t.Errorf("seed %d: %d deletions", seed, n)
		}
	}
}
