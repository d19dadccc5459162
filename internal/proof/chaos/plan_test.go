package main

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"
)

func TestASeedRepeatsItsPlan(t *testing.T) {
	t.Parallel()
	one, again, other := newPlan(7, 3*time.Minute), newPlan(7, 3*time.Minute), newPlan(8, 3*time.Minute)
	if !reflect.DeepEqual(one, again) {
		t.Error("the same seed made another plan")
	}
	if reflect.DeepEqual(one, other) {
		t.Error("another seed made the same plan")
	}
}

func TestAMinuteHasEveryTorment(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		p := newPlan(seed, time.Minute)
		kinds := append(slices.Clone(serverKinds[:]), power)
		for _, c := range deck {
			kinds = append(kinds, c.kind)
		}
		for _, k := range kinds {
			if !slices.ContainsFunc(p, func(s step) bool { return s.kind == k }) {
				t.Errorf("seed %d: no %s", seed, k)
			}
		}
	}
}

func TestAWorkerIsLeftAloneAtAnyTime(t *testing.T) {
	t.Parallel()
	const duration = 4 * time.Minute
	for seed := range uint64(10) {
		p := newPlan(seed, duration)
		for at := time.Duration(0); at < duration; at += 500 * ms {
			disabled := make(map[int][]string)
			for _, s := range p {
				if s.kind.disables() && s.at <= at && at <= s.at+s.lasts {
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

func TestAPlanKeepsToItsTimeAndItsOrder(t *testing.T) {
	t.Parallel()
	for _, duration := range []time.Duration{time.Second, 5 * time.Second, 20 * time.Second, 59 * time.Second, 90 * time.Second} {
		last := time.Duration(0)
		for _, s := range newPlan(3, duration) {
			if s.at < last || s.at+s.lasts > duration {
				t.Errorf("%v: %s", duration, s)
			}
			last = s.at
			if s.kind.ofWorker() != (s.worker >= 0) || s.kind.byProxy() && s.worker == networked {
				t.Errorf("whom does it concern: %s", s)
			}
		}
	}
}
