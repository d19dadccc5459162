package daemon

import (
	"encoding/json"
	"testing"

	"github.com/cuelight/cuelight/store"
)

// The holder of a work key registers what it likes. It must not keep daemons from starting.
func TestWorkspaceOf_IgnoresWhatRemoteWorkersPublish(t *testing.T) {
	t.Parallel()
	w := store.Worker{Capabilities: json.RawMessage(`{"data_dir_id": "a", "publish_dir_id": "b"}`)}
	if got := WorkspaceOf(w); got != (Workspace{Data: "a", Published: "b"}) {
		t.Errorf("a local worker has %+v", got)
	}
	w.Principal = "key"
	if got := WorkspaceOf(w); got != (Workspace{}) {
		t.Errorf("a remote worker has %+v", got)
	}
}
