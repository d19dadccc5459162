package video

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/store"
)

// TaskSizes are the bytes that a task's files take. A file with several hard links counts once: as published if one of
// its links is.
type TaskSizes struct {
	Task      store.ID       `json:"task_id"`
	Data      DataSizes      `json:"data"`
	Published PublishedSizes `json:"published"`

	// FreedData is what the removal of its results, with the copy of its source, would free: files that have no other
	// link.
	FreedData int64 `json:"freed_data_bytes"`
	// FreedAll is what the removal of all that the stages made would free.
	FreedAll int64 `json:"freed_all_bytes"`

	replaced []replacedBytes
}

// DataSizes are the bytes of a task in the data location.
type DataSizes struct {
	Source     int64 `json:"source_bytes"`     // the copy of the source
	Results    int64 `json:"results_bytes"`    // other results of stages
	Unfinished int64 `json:"unfinished_bytes"` // downloads and attempts that are not complete
	Other      int64 `json:"other_bytes"`      // names that Cuelight does not know
}

// Add returns the sum of both.
func (s DataSizes) Add(o DataSizes) DataSizes {
	return DataSizes{s.Source + o.Source, s.Results + o.Results, s.Unfinished + o.Unfinished, s.Other + o.Other}
}

// PublishedSizes are the bytes of a task in the publish location.
type PublishedSizes struct {
	Served     int64 `json:"served_bytes"`     // the generation that players get
	Replaced   int64 `json:"replaced_bytes"`   // older generations
	Unfinished int64 `json:"unfinished_bytes"` // generations that are not served yet
	Other      int64 `json:"other_bytes"`
}

// Add returns the sum of both.
func (s PublishedSizes) Add(o PublishedSizes) PublishedSizes {
	return PublishedSizes{s.Served + o.Served, s.Replaced + o.Replaced, s.Unfinished + o.Unfinished, s.Other + o.Other}
}

// replacedBytes are bytes of generations that were replaced so long ago.
type replacedBytes struct {
	ago   time.Duration
	bytes int64
}

// Total is the sum of all sizes.
func (s TaskSizes) Total() int64 {
	d, p := s.Data, s.Published
	return d.Source + d.Results + d.Unfinished + d.Other + p.Served + p.Replaced + p.Unfinished + p.Other
}

// FreedReplaced is what the removal of generations that were replaced at least keep ago would free. A [Cleaner] adds an hour.
func (s TaskSizes) FreedReplaced(keep time.Duration) (bytes int64) {
	for _, r := range s.replaced {
		if r.ago >= keep+clockSlack {
			bytes += r.bytes
		}
	}
	return bytes
}

// measuredAtOnce is how many tasks are measured at once, where a bucket answers requests.
const measuredAtOnce = 8

// MeasureTasks calls each with the sizes of tasks: of all that have files if tasks is nil. Calls do not overlap, and
// have no order. It changes nothing, and that files disappear meanwhile is no error. In a bucket it makes about
// three requests per task and 1000 files.
func (c Config) MeasureTasks(ctx context.Context, tasks []store.ID, each func(TaskSizes) error) error {
	if tasks == nil {
		data, err := c.DataLocation().tasks(ctx, tasksName)
		if err != nil {
			return fmt.Errorf("measure files: %w", err)
		}
		published, err := c.PublishLocation().tasks(ctx, "")
		if err != nil {
			return fmt.Errorf("measure files: %w", err)
		}
		tasks = slices.Concat(data, published)
		slices.SortFunc(tasks, func(x, y store.ID) int { return slices.Compare(x[:], y[:]) })
		tasks = slices.Compact(tasks)
	}
	var group errgroup.Group
	group.SetLimit(1)
	if c.Bucket != nil || c.PublishBucket != nil {
		group.SetLimit(measuredAtOnce)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	for _, task := range tasks {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			sizes, err := c.measureTask(ctx, task)
			if err != nil {
				err = fmt.Errorf("measure files of %s: %w", task, err)
			} else {
				mu.Lock()
				defer mu.Unlock()
				err = each(sizes)
			}
			if err != nil {
				cancel(err)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

func (c Config) measureTask(ctx context.Context, task store.ID) (TaskSizes, error) {
	m := &taskMeasure{}
	err := m.addData(ctx, c.DataLocation(), path.Join(tasksName, task.String()))
	if err == nil {
		err = m.addPublished(ctx, c.PublishLocation(), task)
	}
	return m.sizes(task), err
}

// SharedSizes are the bytes of files that belong to no task.
type SharedSizes struct {
	Sources int64 `json:"sources_bytes"` // in Bucket: received sources that are not ingested yet
	Copies  int64 `json:"copies_bytes"`  // in DataDir: copies of what is in Bucket
}

// MeasureShared returns the sizes of files that belong to no task.
func (c Config) MeasureShared(ctx context.Context) (s SharedSizes, err error) {
	if c.Bucket == nil {
		return s, nil
	}
	sources, err := c.Bucket.storage.MeasureArtifacts(ctx, sourcesDir)
	if err != nil {
		return s, fmt.Errorf("measure received sources: %w", err)
	}
	for _, a := range sources {
		s.Sources += a.Bytes
	}
	if s.Copies, err = diskspace.Used(ctx, filepath.Join(c.DataDir, copiesName)); err != nil {
		return s, fmt.Errorf("measure copies: %w", err)
	}
	return s, nil
}
