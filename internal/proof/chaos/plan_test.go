package main

import (
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

func TestNewPlan_HasEveryFaultInTwoMinutes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		p := newPlan(seed, 2*time.Minute)
		has := func(kind faultKind, remote bool) bool {
			return slices.ContainsFunc(p, func(s step) bool { return s.kind == kind && (isRemote(s.worker) == remote || kind == killCoordinator) })
		}
		for _, one := range append(tracks, serverTrack) {
			for _, f := range one.faults {
				if !has(f.kind, false) {
					t.Errorf("seed %d: no %s", seed, f.kind)
				}
			}
		}
		for _, f := range slices.Concat(kills, otherFaults) {
			if !has(f.kind, true) {
				t.Errorf("seed %d: no %s of a remote worker", seed, f.kind)
			}
		}
		if n := len(slices.DeleteFunc(p, func(s step) bool { return s.duration != beyondLease })); n != 2*len(longWorkers) {
			t.Errorf("seed %d: %d faults are longer than a lease", seed, n)
		}
	}
}

func TestNewPlan_LeavesOneWorkerOfEachKindWithoutFaults(t *testing.T) {
	t.Parallel()
	const duration = 4 * time.Minute
	for seed := range uint64(10) {
		p := newPlan(seed, duration)
		for at := time.Duration(0); at < duration; at += 500 * ms {
			faults, coordinatorFaults, remote := make(map[int]int), 0, 0
			for _, s := range p {
				if s.at > at || at > s.at+s.duration {
					continue
				}
				switch {
				case s.kind == killCoordinator:
					coordinatorFaults++
				case s.worker != noWorker:
					faults[s.worker]++
				}
			}
			for worker, n := range faults {
				if isRemote(worker) {
					remote++
				}
				if n > 1 {
					t.Fatalf("seed %d, %v: %s has %d faults", seed, at, workerName(worker), n)
				}
			}
			if len(faults)-remote >= workers || remote >= remoteWorkers || coordinatorFaults >= coordinators {
				t.Fatalf("seed %d, %v: %v, %d coordinators killed", seed, at, faults, coordinatorFaults)
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
				t.Errorf("%v: %v %s", duration, s.at, s)
			}
			last = s.at
		}
	}
}
