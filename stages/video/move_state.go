package video

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
)

// ContentKind is what a location has. One location may have both.
type ContentKind string

// The kinds are named like the flags.
const (
	DataContent    ContentKind = "data"
	PublishContent ContentKind = "publish"
)

// movedFile marks a location whose content of a kind was moved. No worker may use it any more.
func movedFile(kind ContentKind) string { return ".cuelight-moved-" + string(kind) }

// Moved says where the content of a location was moved to.
type Moved struct {
	To       string `json:"to"`       // path or address
	Complete bool   `json:"complete"` // everything is there
}

// Moved reads where content of a location was moved to; it is zero if it was not.
func (p Location) Moved(ctx context.Context, kind ContentKind) (Moved, error) {
	moved, _, err := p.readMoved(ctx, kind)
	return moved, err
}

func (p Location) readMoved(ctx context.Context, kind ContentKind) (moved Moved, version string, err error) {
	content, version, err := p.readFile(ctx, movedFile(kind))
	if errors.Is(err, fs.ErrNotExist) {
		return moved, "", nil
	}
	if err == nil {
		err = json.Unmarshal(content, &moved)
	}
	if err == nil && moved.To == "" {
		err = errors.New("it does not say where to")
	}
	if err != nil {
		err = fmt.Errorf("read %s in %s: %w", movedFile(kind), p, err)
	}
	return moved, version, err
}

func (p Location) writeMoved(ctx context.Context, kind ContentKind, moved Moved) error {
	content, err := json.Marshal(moved)
	if err != nil {
		return err
	}
	content = append(content, '\n')
	if p.Bucket != nil {
		_, version, err := p.readMoved(ctx, kind)
		if err == nil {
			_, err = p.Bucket.storage.WriteDocument(ctx, movedFile(kind), content, version)
		}
		return err
	}
	temporary := filepath.Join(p.Dir, movedFile(kind)+".tmp")
	if err := os.WriteFile(temporary, content, servedFileMode); err != nil {
		return err
	}
	if err := syncFile(temporary); err != nil {
		return err
	}
	if err := os.Rename(temporary, filepath.Join(p.Dir, movedFile(kind))); err != nil {
		return err
	}
	return syncFile(p.Dir)
}

func (p Location) removeMoved(ctx context.Context, kind ContentKind) error {
	if p.Bucket != nil {
		return p.Bucket.storage.DeleteDocument(ctx, movedFile(kind))
	}
	if err := os.Remove(filepath.Join(p.Dir, movedFile(kind))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncFile(p.Dir)
}

// MovedError is a location whose content was moved while this process used it, as one that was stopped
// for long does.
type MovedError struct{ Location, To string }

func (e *MovedError) Error() string {
	return fmt.Sprintf("%s was moved to %s; stop this process, and start it with the new location", e.Location, e.To)
}

// checkNotMoved returns a MovedError if the results or the published videos were moved. An error of a
// disk is left to the stage, which explains it.
func (c Config) checkNotMoved(ctx context.Context) error {
	for kind, l := range map[ContentKind]Location{DataContent: c.DataLocation(), PublishContent: c.PublishLocation()} {
		moved, err := l.Moved(ctx, kind)
		if _, isDisk := errors.AsType[*fs.PathError](err); err != nil && !isDisk {
			return err
		}
		if moved.To != "" {
			return &MovedError{l.String(), moved.To}
		}
	}
	return nil
}

// Routes returns those to take.
func (m *Move) Routes() map[ContentKind]Route {
	routes := map[ContentKind]Route{DataContent: m.Data, PublishContent: m.Published}
	maps.DeleteFunc(routes, func(_ ContentKind, r Route) bool { return r == Route{} })
	return routes
}

// IsComplete reports whether the move was finished before. It returns an error if an old location was
// moved elsewhere.
func (m *Move) IsComplete(ctx context.Context) (bool, error) {
	complete := true
	for kind, r := range m.Routes() {
		moved, err := r.From.Moved(ctx, kind)
		if err != nil {
			return false, err
		}
		if moved.To != "" && moved.To != r.To.String() {
			return false, fmt.Errorf("%s was moved to %s; move it from there", r.From, moved.To)
		}
		complete = complete && moved.Complete
	}
	return complete, nil
}

// Begin marks the old locations, so that no worker that starts from now on uses them.
func (m *Move) Begin(ctx context.Context) error {
	for kind, r := range m.Routes() {
		moved, err := r.From.Moved(ctx, kind)
		if err == nil && !moved.Complete {
			err = r.From.writeMoved(ctx, kind, Moved{To: r.To.String()})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Finish lets workers use the new locations. Copy has succeeded for all tasks since Begin.
func (m *Move) Finish(ctx context.Context) error {
	for kind, r := range m.Routes() {
		if err := r.To.removeMoved(ctx, kind); err != nil {
			return err
		}
		if err := r.From.writeMoved(ctx, kind, Moved{To: r.To.String(), Complete: true}); err != nil {
			return err
		}
	}
	return nil
}
