package upload

import (
	"fmt"
	"net/http"
	"time"
)

// uploadView is the JSON form of an upload.
type uploadView struct {
	ID        string     `json:"id"`
	Name      string     `json:"name,omitempty"`
	Type      string     `json:"type,omitempty"`
	Size      int64      `json:"size"`
	Offset    int64      `json:"offset"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	TaskID    string     `json:"task_id,omitempty"`
	Existed   bool       `json:"existed"` // the task existed before
}

func (u *Uploads) newView(e *record) uploadView {
	v := uploadView{
		ID: e.ID, Name: e.Name, Type: e.Type, Size: e.Size, Offset: e.offset,
		CreatedAt: e.Created, TaskID: e.Task, Existed: e.Existed,
	}
	if !e.isComplete() {
		v.ExpiresAt = new(u.expiresAt(e).UTC())
	}
	return v
}

func (u *Uploads) handleGet(w http.ResponseWriter, r *http.Request, id string) error {
	e, err := u.find(r.Context(), id)
	if err != nil {
		return err
	}
	u.setHeaders(w, e)
	return writeJSON(w, http.StatusOK, u.newView(e))
}

// handleList lists the uploads that the principal can resume.
func (u *Uploads) handleList(w http.ResponseWriter, r *http.Request) error {
	unfinished, err := u.unfinished(r.Context())
	if err != nil {
		return fmt.Errorf("list uploads: %w", err)
	}
	views := []uploadView{}
	for _, e := range unfinished {
		if e.Principal == u.options.Principal(r.Context()) && !e.state.SingleRequest && !u.isExpired(e) {
			views = append(views, u.newView(e))
		}
	}
	return writeJSON(w, http.StatusOK, map[string]any{"uploads": views})
}
