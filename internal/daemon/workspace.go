package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages/video"
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

// AliveWithin is how long a worker counts as alive after its last heartbeat.
const AliveWithin = 30 * time.Second

// IDFile is the file that holds a directory's random id.
const IDFile = ".cuelight-id"

// identifyWorkspace reads the ids of the directories or buckets, or creates them at the first use.
func identifyWorkspace(ctx context.Context, c video.Config) (Workspace, error) {
	var w Workspace
	if err := checkNotMoved(ctx, c); err != nil {
		return w, err
	}
	for dir, id := range map[string]*string{c.DataDir: &w.Data, c.PublishDir: &w.Published} {
		var err error
		if *id, err = dirID(dir); err != nil {
			return Workspace{}, fmt.Errorf("identify %s: %w", usererr.Printable(dir), err)
		}
	}
	for _, b := range []struct {
		bucket *video.Bucket
		id     *string
	}{{c.Bucket, &w.Data}, {c.PublishBucket, &w.Published}} {
		if b.bucket == nil {
			continue
		}
		within, cancel := context.WithTimeout(ctx, identifyTimeout)
		id, err := b.bucket.Identity(within, IDFile, rand.Text())
		cancel()
		if err != nil {
			return Workspace{}, explainBucket(b.bucket.String(), err)
		}
		*b.id = id
	}
	return w, nil
}

// explainBucket translates an error of a location. A problem of the storage service explains itself.
func explainBucket(location string, err error) error {
	if _, ok := errors.AsType[*storage.ServiceError](err); ok {
		return fmt.Errorf("%s: %w", location, err)
	}
	return &usererr.Error{
		Kind: usererr.Usage, Text: fmt.Sprintf("%s: %s", usererr.Printable(location), usererr.FirstLine(err.Error())),
		Hint: "cuelight doctor, with the same --data-dir and --publish-dir, says what is missing",
	}
}

// checkNotMoved returns an error if the results or the published videos were moved elsewhere: a worker
// that went on in the old location would divide them between two.
func checkNotMoved(ctx context.Context, c video.Config) error {
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	return cmp.Or(CheckNotMoved(ctx, video.DataContent, c.DataLocation()), CheckNotMoved(ctx, video.PublishContent, c.PublishLocation()))
}

// CheckNotMoved returns an error if content of a location was moved elsewhere, or is being moved.
func CheckNotMoved(ctx context.Context, kind video.ContentKind, location video.Location) error {
	moved, err := location.Moved(ctx, kind)
	switch {
	case err != nil:
		return explainBucket(location.String(), err)
	case moved.To == "":
		return nil
	case moved.Complete:
		return &usererr.Error{
			Kind: usererr.Usage, Text: fmt.Sprintf("%s was moved to %s", usererr.Printable(location.String()), moved.To),
			Hint: fmt.Sprintf("use --%s-dir %s; cuelight move brings everything back", kind, moved.To),
		}
	}
	return &usererr.Error{
		Kind: usererr.Usage, Text: fmt.Sprintf("the move of %s to %s is not complete", usererr.Printable(location.String()), moved.To),
		Hint: "run the same cuelight move again",
	}
}

// CheckNoWorkers returns an error if a worker may be alive: one that has stopped counts until its lease
// is over, unless it has deregistered.
func CheckNoWorkers(ctx context.Context, st *store.Store) error {
	workers, err := st.Workers(ctx, false)
	if err != nil {
		return err
	}
	for _, w := range workers {
		if w.HeartbeatAge > max(w.Lease, AliveWithin) {
			continue
		}
		return &usererr.Error{
			Kind: usererr.Usage,
			Text: fmt.Sprintf("process %d on %s works on this database; its last heartbeat was %s ago",
				w.PID, w.Host, w.HeartbeatAge.Round(time.Second)),
			Hint: "stop all workers, and cuelight run; --copy-only copies while they work",
		}
	}
	return nil
}

// identifyTimeout is that of reading or creating the id of a bucket.
const identifyTimeout = 30 * time.Second

func dirID(dir string) (string, error) {
	file := filepath.Join(dir, IDFile)
	for {
		text, err := os.ReadFile(file)
		if id := strings.TrimSpace(string(text)); err == nil && id != "" {
			return id, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		// The link appears with its content, and only one of several processes creates it.
		temporary := fmt.Sprintf("%s.%s.tmp", file, rand.Text())
		if err := os.WriteFile(temporary, []byte(rand.Text()+"\n"), 0o644); err != nil {
			return "", err
		}
		err = os.Link(temporary, file)
		_ = os.Remove(temporary)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
}

// WorkspaceOf returns the workspace that a worker published; it is empty for workers of
// other programs.
func WorkspaceOf(worker store.Worker) (w Workspace) {
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
		if o.Data == "" || onlyOwnTasks && o.OnlyOwnTasks || other.HeartbeatAge > AliveWithin {
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
			Text: fmt.Sprintf("process %d on %s works on the same database with another %s directory",
				other.PID, other.Host, kind),
			Hint: "processes on one database take each other's tasks: " +
				"give all of them the same directories, or another database",
		}
	}
	return nil
}
