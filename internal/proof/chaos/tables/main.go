// Command tables creates the tables of a pipeline:
//
//	tables URL NAME NODES
//
// The nodes are a JSON array of store.Node. The command chaos builds it with an earlier revision of Cuelight, to get
// tables as that revision creates them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

func main() {
	if err := create(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tables:", err)
		os.Exit(1)
	}
}

func create(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return errors.New("usage: tables URL NAME NODES")
	}
	var nodes []store.Node
	if err := json.Unmarshal([]byte(args[2]), &nodes); err != nil {
		return fmt.Errorf("read nodes: %w", err)
	}
	g, err := store.NewGraph(args[1], nodes...)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, args[0])
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = store.New(conn, g).Migrate(ctx)
	return err
}
