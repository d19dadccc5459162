package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// options are the settings of the command line.
type options struct {
	seed     uint64
	duration time.Duration
	keepDir  string      // "": the logs are removed
	only     []faultKind // nil: all
	failover faultKind   // "": the plan of the seed
	healthy  time.Duration
	videos   bool
}

func (o *options) setOnly(names string) error {
	for name := range strings.SplitSeq(names, ",") {
		kind := faultKind(name)
		if all := plannedFaults(); !slices.Contains(all, kind) {
			return fmt.Errorf("unknown fault %q; allowed: %v", name, all)
		}
		o.only = append(o.only, kind)
	}
	return nil
}

func (o *options) setFailover(how string) error {
	switch how {
	case "kill":
		o.failover = failoverKill
	case "readonly":
		o.failover = failoverReadOnly
	default:
		return fmt.Errorf("unknown way to fail %q; allowed: kill, readonly", how)
	}
	return nil
}

// setDefaults decides what follows from the mode.
func (o *options) setDefaults() {
	if o.failover != "" {
		o.healthy = 8 * time.Second
		return
	}
	// Each worker sweeps twice, which would show a worker that no notification reaches.
	o.healthy = 20 * time.Second
	o.videos = true
}

// plan returns the faults of this run.
func (o *options) plan() plan {
	if o.failover != "" {
		return plan{{duration: promoteAfter, kind: o.failover, worker: noWorker}}
	}
	p := newPlan(o.seed, o.duration)
	if o.only == nil {
		return p
	}
	return slices.DeleteFunc(p, func(s step) bool { return !slices.Contains(o.only, s.kind) })
}
