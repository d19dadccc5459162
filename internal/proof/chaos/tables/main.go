// Command tables works on the tables of a pipeline:
//
//	tables create URL NAME NODES
//	tables remove URL NAME NODES
//
// create creates them. remove removes deleted tasks, as a process with stages.Retention does, until its standard input ends, and
// prints a line for each: published or files, and the task. The nodes are a JSON array of store.Node. The command chaos
// builds it with an earlier revision of Cuelight, to get what that revision does.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tables:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 4 {
		return errors.New("usage: tables create|remove URL NAME NODES")
	}
	var nodes []store.Node
	if err := json.Unmarshal([]byte(args[3]), &nodes); err != nil {
		return fmt.Errorf("read nodes: %w", err)
	}
	g, err := store.NewGraph(args[2], nodes...)
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, args[1])
	if err != nil {
		return err
	}
	defer pool.Close()
	if args[0] == "create" {
		_, err = store.New(pool, g).Migrate(ctx)
		return err
	}
	removeUntilInputEnds(ctx, engine.New(pool, g))
	return nil
}

const (
	interval    = 100 * time.Millisecond
	keepDeleted = 30 * 24 * time.Hour
)

func removeUntilInputEnds(ctx context.Context, e *engine.Engine) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	for {
		within, cancel := context.WithTimeout(ctx, 10*time.Second)
		_ = remove(within, e) // the next call tries again
		cancel()
		select {
		case <-ended:
			return
		case <-time.After(interval):
		}
	}
}

func remove(ctx context.Context, e *engine.Engine) error {
	published, err := e.ClaimToUnpublish(ctx)
	for _, task := range published {
		fmt.Println("published", task.ID)
		err = errors.Join(err, e.RecordUnpublished(ctx, task))
	}
	if err != nil {
		return err
	}
	purged, err := e.ClaimToPurge(ctx, keepDeleted)
	for _, task := range purged {
		fmt.Println("files", task.ID)
		err = errors.Join(err, e.Purge(ctx, task.ID, ""))
	}
	return err
}
