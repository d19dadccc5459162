package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
	"github.com/cuelight/cuelight/store"
)

// deletion is what this program did with one task, in this order. Zero times are of what it did not.
type deletion struct {
	task      store.ID
	options   store.DeleteOptions
	asked     time.Time // the first try to delete it
	deleted   time.Time // acknowledged
	restoring time.Time // the first try to restore it
	restored  time.Time // acknowledged
	purging   time.Time // the first try to purge it
}

// mayBePurged reports whether the task was to be purged.
func (d *deletion) mayBePurged() bool { return d.options.Purge || !d.purging.IsZero() }

// addDeletion returns a deletion of the task; nil if there was one before.
func (i *injector) addDeletion(task store.ID, o store.DeleteOptions) *deletion {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.deletions[task] != nil {
		return nil
	}
	d := &deletion{task: task, options: o, asked: time.Now()}
	i.deletions[task] = d
	return d
}

// deletionOptions are the ways to delete tasks, by turns.
var deletionOptions = []store.DeleteOptions{
	{}, {KeepPublished: true, By: "chaos"}, {Purge: true}, {KeepPublished: true, Purge: true},
}

// deleteSomeSQL selects tasks that are worked on or wait, and some others.
const deleteSomeSQL = `
(select id from chaos_tasks where publish_status <> 'completed' order by random() limit 16)
 union
(select id from chaos_tasks order by random() limit 8)`

// deleteTasks deletes tasks and, some time later, restores a third of those that were not to be purged and purges
// another third.
func (i *injector) deleteTasks(ctx context.Context, s step) error {
	acknowledged := i.submitter.acknowledgedTasks()
	var chosen []store.ID
	err := i.operate(ctx, func(ctx context.Context, conn *pgx.Conn, _ *store.Store) error {
		rows, err := conn.Query(ctx, deleteSomeSQL)
		if err == nil {
			chosen, err = pgx.CollectRows(rows, pgx.RowTo[store.ID])
		}
		return err
	})
	if err != nil {
		return err
	}
	var deleted []*deletion
	for _, id := range chosen {
		if !acknowledged[id] { // its submission will be repeated, and the task be another one
			continue
		}
		d := i.addDeletion(id, deletionOptions[len(deleted)%len(deletionOptions)])
		if d == nil {
			continue
		}
		if err := i.deleteTask(ctx, id, d.options); err != nil {
			return err
		}
		d.deleted = time.Now()
		deleted = append(deleted, d)
	}
	if err := ctxsleep.For(ctx, s.duration); err != nil {
		return err
	}
	for n, d := range deleted {
		if err := i.endDeletion(ctx, d, n/2%3); err != nil {
			return err
		}
	}
	return nil
}

// endDeletion restores a deleted task, purges it, or leaves it.
func (i *injector) endDeletion(ctx context.Context, d *deletion, choice int) (err error) {
	switch {
	case d.options.Purge:
	case choice == 0:
		d.restoring = time.Now()
		var isThere bool
		if isThere, err = i.restoreTask(ctx, d.task); err == nil && isThere {
			d.restored = time.Now()
		}
		if errors.Is(err, store.ErrUnpublishing) {
			err = nil // by a process that was killed, whose claim lasts longer
		}
	case choice == 1:
		d.purging = time.Now()
		err = i.deleteTask(ctx, d.task, store.DeleteOptions{Purge: true})
	}
	return err
}

// deleteTask deletes a task. A try without an answer may have deleted it.
func (i *injector) deleteTask(ctx context.Context, id store.ID, o store.DeleteOptions) error {
	return i.operate(ctx, func(ctx context.Context, _ *pgx.Conn, st *store.Store) error {
		err := st.Delete(ctx, id, o)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		return err
	})
}

// restoreTask restores a task, and reports whether it is there. A try without an answer may have restored it. Retention
// may have deleted it before, or since; the check finds out why it is not there.
func (i *injector) restoreTask(ctx context.Context, id store.ID) (isThere bool, err error) {
	err = i.operate(ctx, func(ctx context.Context, _ *pgx.Conn, st *store.Store) error {
		err := st.Undelete(ctx, id, "")
		if errors.Is(err, store.ErrNotFound) {
			_, err = st.Get(ctx, id)
		}
		if isThere = err == nil; errors.Is(err, store.ErrNotFound) {
			return nil
		}
		return err
	})
	return isThere, err
}

// operatorTimeout is how long an operation of an operator is tried, in which the server may be away.
const operatorTimeout = 30 * time.Second

// operate repeats what an operator does until it succeeds.
func (i *injector) operate(ctx context.Context, do func(context.Context, *pgx.Conn, *store.Store) error) error {
	return proofkit.Retry(ctx, operatorTimeout, func(ctx context.Context) error {
		return i.withConn(ctx, func(conn *pgx.Conn) error { return do(ctx, conn, store.New(conn, graph())) })
	})
}
