package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

func (c *cli) deleteCommand() *cobra.Command {
	var o store.DeleteOptions
	cmd := &cobra.Command{
		Use:   "delete ID...",
		Short: "Delete videos; cuelight undelete restores them",
		Long: `Delete deletes videos: their tasks are in no list any more, running stages are stopped,
on whichever host, and a daemon removes the published files at once. With
--keep-published these stay for now.

After --keep-deleted of the daemons, by default 30 days, a daemon purges a deleted
video: its published files, its results and its history are removed. Until then
cuelight undelete restores it, and publishes it again. With --purge that happens at
once, and nothing can be restored.

The source that was submitted is never deleted. cuelight list --deleted lists deleted
videos.`,
		Args: atLeastOne("ID"),
	}
	f := cmd.Flags()
	f.BoolVar(&o.KeepPublished, "keep-published", false, "keep the published files until the video is purged")
	f.BoolVar(&o.Purge, "purge", false, "remove all files and the history at once; nothing can be restored")
	yes := f.BoolP("yes", "y", false, "do not ask for confirmation")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.Purge {
			if o.KeepPublished {
				return usererr.Usagef("--purge cannot be combined with --keep-published")
			}
			if !*yes && c.isInteractive() && !c.confirm(fmt.Sprintf("Purge %d videos? They cannot be restored.", len(args))) {
				return &usererr.Error{Text: "nothing was changed"}
			}
		}
		ctx := cmd.Context()
		return c.withExistingDatabase(ctx, func(db *dbconn.Database) error {
			err := c.each(ctx, args, func(word string) error { return c.deleteOne(ctx, db, word, o) })
			if err == nil && !o.KeepPublished {
				c.noteMissingDaemon(ctx, db.Store)
			}
			return err
		})
	}
	return cmd
}

func (c *cli) deleteOne(ctx context.Context, db *dbconn.Database, word string, o store.DeleteOptions) error {
	id, err := db.Store.Find(ctx, strings.ToLower(word))
	if errors.Is(err, store.ErrNotFound) && o.Purge { // a task that was deleted before can be purged
		id, err = db.Store.FindDeleted(ctx, strings.ToLower(word))
	}
	if err != nil {
		return explainDeleted(ctx, db.Store, word, err)
	}
	if _, err := c.actions(db).Delete(ctx, id, o); err != nil {
		return explainDeleted(ctx, db.Store, word, err)
	}
	if o.Purge {
		return c.printResult(id, "deleted, to be purged at once")
	}
	return c.printResult(id, "deleted")
}

// noteMissingDaemon says that files stay while no daemon runs.
func (c *cli) noteMissingDaemon(ctx context.Context, st *store.Store) {
	if workers, err := st.Workers(ctx, false); err == nil && len(workers) == 0 {
		fmt.Fprintln(c.err, "cuelight: no daemon is running: the files stay until cuelight serve runs")
	}
}

func (c *cli) undeleteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "undelete ID...",
		Short: "Restore deleted videos",
		Long: `Undelete restores deleted videos that are not purged yet. Their published files are
published again, also if nothing else was left of a video (serve --keep-source-copies),
and stages that were running begin again.`,
		Args: atLeastOne("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return c.withExistingDatabase(ctx, func(db *dbconn.Database) error {
				return c.each(ctx, args, func(word string) error { return c.undeleteOne(ctx, db, word) })
			})
		},
	}
	c.jsonFlag(cmd)
	return cmd
}

// undeleteTimeout is how long undelete waits for a daemon that is removing the published files.
const undeleteTimeout = 10 * time.Second

func (c *cli) undeleteOne(ctx context.Context, db *dbconn.Database, word string) error {
	id, err := db.Store.FindDeleted(ctx, strings.ToLower(word))
	if err == nil {
		_, err = db.Store.GetDeleted(ctx, id)
	}
	if errors.Is(err, store.ErrNotFound) {
		text := usererr.FirstLine(strings.Replace(err.Error(), "no such task", "no such deleted task", 1))
		return &usererr.Error{Kind: usererr.NotFound, Text: text, Hint: "cuelight list --deleted shows deleted tasks"}
	}
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(undeleteTimeout); ; {
		err := c.actions(db).Undelete(ctx, id)
		if err == nil {
			break
		}
		if !errors.Is(err, store.ErrUnpublishing) || time.Now().After(deadline) || ctxsleep.For(ctx, time.Second/4) != nil {
			return err
		}
	}
	t, err := db.Store.Get(ctx, id)
	if err != nil {
		return err
	}
	return c.printResult(id, "restored: "+string(t.Status))
}

// listDeleted prints deleted tasks, the last deleted one first.
func (c *cli) listDeleted(ctx context.Context, db *dbconn.Database, f store.Filter, after string) (err error) {
	q := store.DeletedQuery{UserID: f.UserID, Limit: f.Limit}
	if after != "" {
		if q.After, err = db.Store.FindDeleted(ctx, strings.ToLower(after)); err != nil {
			return err
		}
	}
	tasks, err := db.Store.ListDeleted(ctx, q)
	if err != nil {
		return err
	}
	err = printList(c, tasks, "deleted tasks", "ID DELETED BY STATE SOURCE", func(t store.DeletedTask) []string {
		id := t.ID.String()
		if c.out.IsTerminal {
			id = shortID(t.ID)
		}
		return []string{id, age(t.DeletedAt), t.DeletedBy, deletedState(t), titleOf(store.Task{Source: t.Source, Params: t.Params})}
	})
	if err == nil && len(tasks) == q.Limit && !c.json {
		fmt.Fprintf(c.err, "cuelight: there may be more: use --limit, or --after %s\n", shortID(tasks[len(tasks)-1].ID))
	}
	return err
}

// deletedState says what has become of a deleted task's files.
func deletedState(t store.DeletedTask) string {
	switch {
	case t.PurgingAt != nil || t.PurgeAt != nil:
		return "being purged"
	case t.KeepPublished:
		return "published files kept"
	case t.UnpublishedAt == nil:
		return "not unpublished yet"
	}
	return "can be restored"
}
