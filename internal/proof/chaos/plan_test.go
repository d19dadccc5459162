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

func TestNewPlan_LeavesOneWorkerWithoutFaults(t *testing.T) {
	t.Parallel()
	const duration = 4 * time.Minute
	for seed := range uint64(10) {
		p := newPlan(seed, duration)
		for at := time.Duration(0); at < duration; at += 500 * ms {
			disabled := make(map[int][]string)
			for _, s := range p {
				if s.kind.disablesWorker() && s.at <= at && at <= s.at+s.duration {
					disabled[s.worker] = append(disabled[s.worker], fmt.Sprint(s))
				}
			}
			if len(disabled) >= workers {
				t.Fatalf("seed %d, %v: %v", seed, at, disabled)
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
