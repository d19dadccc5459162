package video

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/store"
)

// Move brings the results of tasks, published videos, or both to other locations: from a directory to
// a bucket, back, or from a bucket to another one of the same service.
//
// Copy may run at any time, also next to workers, and may be repeated: it copies what the new location
// does not have. For the whole move, call Begin while no worker is alive, Copy for all Tasks, and
// Finish. Only Remove changes what is in the old locations.
type Move struct {
	Data, Published Route // a zero Route: these stay
	DryRun          bool  // Copy only counts
	// Reserve is how many bytes stay free on the disk of a directory to move to. Default 1 GiB; negative: none.
	Reserve int64
	// Progress is called with the name of what is copied, and its bytes. Calls for one name do not overlap.
	Progress func(name string, done, total int64)

	disks diskUse
}

// Route is where something is and where it is moved to.
type Route struct{ From, To Location }

// CopyResult is what one call of Copy did for a task.
type CopyResult struct {
	Copied  int   `json:"copied"`  // directories of results and generations
	Present int   `json:"present"` // those that the new location had before
	Bytes   int64 `json:"bytes"`   // of the copied ones
	// Switched says that the stable address in the new location was created or replaced.
	Switched bool `json:"switched"`

	there  []storage.LocalArtifact // what the new location has of the task, whose files need not be sent again
	hashes map[string]bool         // SHA-256 of these files, as far as they are known
}

// tasksName is the directory of results in their location.
const tasksName = "tasks"

// Check returns an error if a route cannot be taken.
func (m *Move) Check() error {
	if m.Data == (Route{}) && m.Published == (Route{}) {
		return errors.New("there is no location to move to")
	}
	return errors.Join(m.Data.check(), m.Published.check())
}

func (r Route) check() error {
	switch {
	case r == Route{}:
		return nil
	case r.From.String() == r.To.String() && !r.hasTwoServices():
		return fmt.Errorf("%s is the location that it is moved from", r.To)
	case r.From.Bucket == nil && r.To.Bucket == nil:
		return fmt.Errorf("%s and %s are two directories; stop all workers and move the directory with mv", r.From, r.To)
	case r.hasTwoServices():
		return fmt.Errorf("%s and %s are in two services, so neither can copy; move to a directory first", r.From, r.To)
	case r.From.Bucket == nil:
		info, err := os.Stat(r.From.Dir)
		if err == nil && !info.IsDir() {
			err = errNotDir
		}
		if err != nil {
			return fmt.Errorf("read directory to move: %w", err)
		}
	}
	return nil
}

func (r Route) hasTwoServices() bool {
	return r.From.Bucket != nil && r.To.Bucket != nil &&
		r.From.Bucket.storage.Address().Endpoint != r.To.Bucket.storage.Address().Endpoint
}

// Tasks lists the tasks that have something in the old locations, the oldest first.
func (m *Move) Tasks(ctx context.Context) ([]store.ID, error) {
	var all []store.ID
	for sub, route := range map[string]Route{tasksName: m.Data, "": m.Published} {
		if route == (Route{}) {
			continue
		}
		tasks, err := route.From.tasks(ctx, sub)
		if err != nil {
			return nil, err
		}
		all = append(all, tasks...)
	}
	slices.SortFunc(all, func(a, b store.ID) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(all), nil
}

// Copy copies what the new locations do not have of a task: its finished results, and its published
// generations up to the served one. Then it replaces the stable address in the new location, unless
// that serves a newer generation. A result that is removed meanwhile, because a newer one has
// replaced it, is not copied.
func (m *Move) Copy(ctx context.Context, task store.ID) (done CopyResult, err error) {
	if m.Data != (Route{}) {
		if err := m.copyResults(ctx, task, &done); err != nil {
			return done, err
		}
	}
	if m.Published != (Route{}) {
		err = m.copyPublished(ctx, task, &done)
	}
	return done, err
}

func (m *Move) copyResults(ctx context.Context, task store.ID, done *CopyResult) error {
	dir := path.Join(tasksName, task.String())
	found, err := m.Data.From.finished(ctx, dir)
	if err != nil {
		return err
	}
	order := resultStages()
	slices.SortStableFunc(found, func(a, b dirName) int { return slices.Index(order, a.stage) - slices.Index(order, b.stage) })
	for _, d := range found {
		if slices.Contains(order, d.stage) {
			if _, err := m.copyDir(ctx, m.Data, path.Join(dir, d.String()), privateMode, done); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyTries is how often a published video is copied if it is replaced meanwhile.
const copyTries = 5

func (m *Move) copyPublished(ctx context.Context, task store.ID, done *CopyResult) error {
	for range copyTries {
		if isReplaced, err := m.tryCopyPublished(ctx, task, done); !isReplaced {
			return err
		}
	}
	return errors.New("the served generation does not exist, or is replaced again and again; publish the task again")
}

// IsServed reports whether the new location serves a published video of a task.
func (m *Move) IsServed(ctx context.Context, task store.ID) (bool, error) {
	stable, err := m.Published.To.readStable(ctx, task)
	return stable.newest() > 0, err
}

// tryCopyPublished reports whether the served generation was replaced, and removed, before it was copied, or
// that of the new location by another process.
func (m *Move) tryCopyPublished(ctx context.Context, task store.ID, done *CopyResult) (isReplaced bool, err error) {
	r := m.Published
	stable, err := r.From.readStable(ctx, task)
	if err != nil || stable.newest() == 0 {
		return false, err
	}
	current, err := r.To.readStable(ctx, task)
	if err != nil || current.newest() > stable.newest() {
		return false, err
	}
	generations, err := r.From.finished(ctx, task.String())
	if err != nil {
		return false, err
	}
	copied := make(map[string]bool) // an attempt that lost its claim may have left a second generation of a number
	for _, d := range generations {
		if d.stage != generationPrefix || d.number > stable.newest() {
			continue
		}
		there, err := m.copyDir(ctx, r, path.Join(task.String(), d.String()), servedMode, done)
		if err != nil {
			return false, err
		}
		copied[d.String()] = there
	}
	for _, s := range stable {
		for _, generation := range s.served {
			if !copied[generation] {
				return true, nil
			}
		}
	}
	err = m.switchStable(ctx, task, stable, current, done)
	if errors.Is(err, storage.ErrConflict) {
		return true, nil
	}
	return false, err
}

// switchStable makes the new location serve what the old one does.
func (m *Move) switchStable(ctx context.Context, task store.ID, stable, current stableManifests, done *CopyResult) error {
	var contents [2][]byte
	isSame := true
	for i, s := range stable {
		if string(s.content) != string(current[i].content) {
			contents[i], isSame = s.content, false
		}
	}
	var err error
	if !isSame && !m.DryRun {
		err = m.Published.To.replaceStable(ctx, task, current, contents)
	}
	if err == nil && !isSame {
		done.Switched = true
	}
	return err
}
