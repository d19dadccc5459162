package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

const (
	// moveConcurrency is how many tasks are copied at once: most requests are short and wait for the service.
	moveConcurrency = 8
	// moveProgressInterval is the time between two lines about one directory.
	moveProgressInterval = 10 * time.Second
)

// movedTask is what move prints of a task.
type movedTask struct {
	TaskID store.ID `json:"task_id"`
	video.CopyResult
}

// moveOutput prints what concurrent copies do.
type moveOutput struct {
	c      *cli
	total  int  // tasks
	dryRun bool // nothing is copied

	mu      sync.Mutex // guards the rest, and the output
	ended   int
	failed  int
	printed map[string]time.Time // when a line about a directory was printed, or its copy began
}

// copyTasks copies all tasks, and calls copied for each.
func (c *cli) copyTasks(ctx context.Context, m *video.Move, copied func(context.Context, store.ID) error) error {
	tasks, err := m.Tasks(ctx)
	if err != nil {
		return err
	}
	out := &moveOutput{c: c, total: len(tasks), dryRun: m.DryRun, printed: make(map[string]time.Time)}
	m.Progress = out.progress
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(moveConcurrency)
	for _, task := range tasks {
		group.Go(func() error {
			if groupCtx.Err() != nil {
				return context.Cause(groupCtx)
			}
			done, err := m.Copy(groupCtx, task)
			if err == nil {
				err = copied(groupCtx, task)
			}
			if groupCtx.Err() != nil {
				return context.Cause(groupCtx)
			}
			return out.task(task, done, err)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return exitStatusFor(len(tasks)-out.failed, len(tasks))
}

// task prints the result of a task. It returns an error if the other tasks would have it, too.
func (o *moveOutput) task(task store.ID, done video.CopyResult, err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended++
	if _, isService := errors.AsType[*storage.ServiceError](err); isService {
		return fmt.Errorf("%s: %w", task, err)
	}
	if err != nil {
		o.failed++
		_, err = fmt.Fprintf(o.c.err, "cuelight: %s: %s\n", task, usererr.FirstLine(err.Error()))
		return err
	}
	text := "nothing to copy"
	if done.Copied > 0 || done.Switched {
		verb := "copied"
		if o.dryRun {
			verb = "to copy"
		}
		text = fmt.Sprintf("%d of %d directories %s, %s", done.Copied, done.Copied+done.Present, verb, console.Size(done.Bytes))
	}
	return o.c.print(movedTask{task, done}, "%d/%d %s: %s", o.ended, o.total, task, text)
}

// progress prints how far the copy of a large directory is.
func (o *moveOutput) progress(name string, done, total int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last, ok := o.printed[name]
	switch {
	case done >= total:
		delete(o.printed, name)
	case !ok:
		o.printed[name] = time.Now()
	case time.Since(last) >= moveProgressInterval:
		o.printed[name] = time.Now()
		fmt.Fprintf(o.c.err, "%s: %s of %s\n", name, console.Size(done), console.Size(total))
	}
}
