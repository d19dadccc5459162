package stages

import (
	"encoding/json"
	"os"
	"strings"

	"github.com/cuelight/cuelight/store"
)

// processIdentity identifies a process on its machine, so that later processes there can
// find out whether it has ended. A field that the system does not offer is empty, and
// nothing is concluded.
type processIdentity struct {
	boot         string // differs after every boot of the machine
	pidNamespace string // the namespace of process ids
	start        string // when the kernel started this process
}

func currentProcess() processIdentity {
	return processIdentity{boot: bootID(), pidNamespace: pidNamespace(), start: processStart(os.Getpid())}
}

// String is at most about a hundred characters.
func (p processIdentity) String() string {
	return strings.Join([]string{p.boot, p.pidNamespace, p.start}, "/")
}

func parseIdentity(s string) (processIdentity, bool) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 {
		return processIdentity{}, false
	}
	return processIdentity{parts[0], parts[1], parts[2]}, true
}

// hasWorkerEnded reports whether a worker's process has certainly ended: no process here has
// its id, or one that was started at another time. Nothing is certain about processes from
// before a boot, because another machine may have the same name.
func (p processIdentity) hasWorkerEnded(host string, w store.Worker) bool {
	other, ok := parseIdentity(w.ProcessIdentity)
	return ok && w.Host == host && p.boot != "" && other.boot == p.boot && other.pidNamespace == p.pidNamespace && hasEnded(w.PID, other.start)
}

// hasEnded reports whether the process with the id and start time has ended, also if its parent has not
// noticed it yet.
func hasEnded(pid int, start string) bool {
	if pid <= 0 {
		return false
	}
	if isGone(pid) || isZombie(pid) {
		return true
	}
	now := processStart(pid)
	return start != "" && now != "" && now != start
}

// self describes this process as a worker.
func (r *Runner) self() store.Worker {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	return store.Worker{
		Name: r.Name, Host: host, PID: os.Getpid(), ProcessIdentity: currentProcess().String(),
		Lease: r.Lease, Version: r.Version, Capabilities: r.capabilities(),
	}
}

// capabilities adds the stages of this process to its capabilities.
func (r *Runner) capabilities() json.RawMessage {
	all := make(map[string]any)
	if len(r.Capabilities) > 0 && json.Unmarshal(r.Capabilities, &all) != nil {
		return r.Capabilities // the database refuses what is not an object
	}
	stages := []string{}
	for _, s := range r.Pipeline.stages {
		if s.Slots > 0 {
			stages = append(stages, s.Name)
		}
	}
	all["stages"] = stages
	raw, err := json.Marshal(all)
	if err != nil {
		return r.Capabilities
	}
	return raw
}
