package childproc_test

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"github.com/cuelight/cuelight/internal/childproc"
)

const hasDeathSignal = true

// A goroutine that ends while it is locked to its thread ends the thread, and with
// it every child whose death signal is bound to that thread.
func TestChild_OutlivesTheThreadOfItsCaller(t *testing.T) {
	t.Parallel()
	started := make(chan *childproc.Process)
	go func() {
		runtime.LockOSThread()
		p, err := childproc.Start(shell("sleep 3600"), childproc.Options{})
		if err != nil {
			t.Error(err)
		}
		started <- p
	}()
	p := <-started
	if p == nil {
		return
	}
	select {
	case <-p.Done():
		t.Errorf("the child ended with the thread of its caller: %v", p.Err())
	case <-time.After(200 * time.Millisecond):
		p.Kill()
	}
}

func TestDone_MeansThatTheWholeGroupIsGone(t *testing.T) {
	t.Parallel()
	p := start(t, "sleep 3600 & exit 0", childproc.Options{Session: true})
	<-p.Done()
	if members := groupMembers(t, p.PID()); p.Err() != nil || len(members) > 0 {
		t.Errorf("error %v; members of the group: %v", p.Err(), members)
	}
}

func TestDone_KeepsTheGroupWithLeavesGroup(t *testing.T) {
	t.Parallel()
	p := start(t, "sleep 3600 >/dev/null 2>&1 & exit 0", childproc.Options{LeavesGroup: true})
	<-p.Done()
	if len(groupMembers(t, p.PID())) == 0 {
		t.Error("the rest of the group was killed")
	}
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
}

// groupMembers lists the processes of a group that are not zombies: PID 1 of a
// container does not always reap orphans.
func groupMembers(t *testing.T, group int) (pids []int) {
	t.Helper()
	all, err := procfs.AllProcs()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if stat, err := p.Stat(); err == nil && stat.PGRP == group && stat.State != "Z" {
			pids = append(pids, p.PID)
		}
	}
	return pids
}
