package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

// Workspace identifies the directories that a process works in. Processes that take each
// other's tasks must share them, under any path: otherwise a stage would not find the
// files of the stage before it, and videos would be published in several directories.
type Workspace struct {
	Data         string `json:"data_dir_id,omitempty"` // empty for remote workers
	Published    string `json:"publish_dir_id,omitempty"`
	OnlyOwnTasks bool   `json:"only_some_tasks,omitempty"` // the process takes its own tasks only
}

// aliveWithin is how long a worker counts as alive after its last heartbeat, unless its lease makes these rare.
const aliveWithin = 30 * time.Second

// IsAlive reports whether a worker has sent a heartbeat lately.
func IsAlive(w store.Worker) bool {
	return w.HeartbeatAge <= max(aliveWithin, store.DisconnectGrace(w.Lease))
}

// CheckNoWorkers returns an error if a worker may be alive: one that has stopped counts until its lease
// is over, unless it has deregistered.
func CheckNoWorkers(ctx context.Context, st *store.Store) error {
	workers, err := st.Workers(ctx, false)
	if err != nil {
		return err
	}
	for _, w := range workers {
		if w.HeartbeatAge > max(w.Lease, aliveWithin) {
			continue
		}
		return &usererr.Error{
			Kind: usererr.Usage,
			Text: fmt.Sprintf("%s this database; its last heartbeat was %s ago", worksOn(w), w.HeartbeatAge.Round(time.Second)),
			Hint: "stop all workers, and cuelight run",
		}
	}
	return nil
}

// WorkspaceOf returns the workspace that a worker published; it is empty for workers of
// other programs, and for remote ones, whatever they publish.
func WorkspaceOf(worker store.Worker) (w Workspace) {
	if worker.Kind() != "local" {
		return w
	}
	_ = json.Unmarshal(worker.Capabilities, &w)
	return w
}

// checkWorkers returns an error if a live worker on the same database has other
// directories and would take this process's tasks, or this process its.
func (w Workspace) checkWorkers(ctx context.Context, st *store.Store, onlyOwnTasks bool) error {
	workers, err := st.Workers(ctx, false)
	if err != nil {
		return err
	}
	for _, other := range workers {
		o := WorkspaceOf(other)
		if o.Data == "" || onlyOwnTasks && o.OnlyOwnTasks || !IsAlive(other) {
			continue
		}
		kind := ""
		switch {
		case o.Data != w.Data:
			kind = "data"
		case o.Published != w.Published:
			kind = "publish"
		default:
			continue
		}
		return &usererr.Error{
			Kind: usererr.Usage,
			Text: fmt.Sprintf("%s the same database with another %s directory", worksOn(other), kind),
			Hint: "processes on one database take each other's tasks: " +
				"give all of them the same directories, or another database",
		}
	}
	return nil
}
