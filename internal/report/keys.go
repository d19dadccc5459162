package report

import (
	"context"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/store"
)

// Key is an API key and its state.
type Key struct {
	access.Key
	// State is revoked or disabled; otherwise, for a key of the scope work, the state of the
	// newest live worker that registered with it, or offline without one; otherwise valid.
	State string `json:"state"`
	// WorkerID and WorkerName are those of that worker.
	WorkerID   *store.ID `json:"worker_id,omitempty"`
	WorkerName string    `json:"worker_name,omitempty"`
}

// Keys lists all API keys, the oldest first. It knows the workers of this pipeline only.
func (r *Reader) Keys(ctx context.Context) ([]Key, error) {
	all, err := access.NewKeyStore(r.db).Keys(ctx)
	if err != nil {
		return nil, err
	}
	workers, err := store.New(r.db, r.graph).Workers(ctx, false)
	if err != nil {
		return nil, err
	}
	newest := make(map[string]store.Worker)
	for _, w := range workers { // in the order of their registration
		newest[w.Principal] = w
	}
	keys := []Key{}
	for _, k := range all {
		keys = append(keys, newKey(k, newest))
	}
	return keys, nil
}

func newKey(k access.Key, newest map[string]store.Worker) Key {
	out := Key{Key: k, State: "valid"}
	switch w, isLive := newest[k.PrincipalName()]; {
	case k.RevokedAt != nil:
		out.State = "revoked"
	case k.DisabledAt != nil:
		out.State = "disabled"
	case k.Scope == access.Work.String() && isLive:
		out.State, out.WorkerID, out.WorkerName = w.State(), &w.ID, w.Name
	case k.Scope == access.Work.String():
		out.State = "offline"
	}
	return out
}
