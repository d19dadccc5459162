package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

func (c *cli) workersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "workers",
		Short: "List worker processes and what they run",
		Long: `Workers lists the worker processes on all hosts, and the stages that each of them is
running. A worker sends a heartbeat every two seconds; one that has missed three is
silent. It is lost, and other workers take its tasks, at once if its connection has
ended too, otherwise when its lease expires (--lease of serve).`,
		Args: noArguments,
	}
	all := cmd.Flags().Bool("all", false, "include workers that stopped or were lost")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		err := c.withExistingDatabase(cmd.Context(), func(db *dbconn.Database) error {
			return c.listWorkers(cmd.Context(), db, *all)
		})
		return c.ignoreNotCreated(err)
	}
	return cmd
}

// workerJSON is a worker in JSON.
type workerJSON struct {
	ID           store.ID        `json:"worker_id"`
	Host         string          `json:"host"`
	PID          int             `json:"pid"`
	Version      string          `json:"version"`
	State        string          `json:"state"` // working, draining, silent, stopped or lost
	StartedAt    time.Time       `json:"started_at"`
	HeartbeatAge float64         `json:"heartbeat_age_s"`
	Lease        float64         `json:"lease_s"`
	Connected    bool            `json:"connected"` // its session is open
	Capabilities json.RawMessage `json:"capabilities"`
	Running      []store.Running `json:"running"`
}

func (c *cli) listWorkers(ctx context.Context, db *dbconn.Database, all bool) error {
	workers, err := db.Store.Workers(ctx, all)
	if err != nil {
		return err
	}
	var shown []workerJSON
	for _, w := range workers {
		shown = append(shown, workerJSON{
			ID: w.ID, Host: w.Host, PID: w.PID, Version: w.Version, State: w.State(), StartedAt: w.StartedAt,
			HeartbeatAge: w.HeartbeatAge.Seconds(), Lease: w.Lease.Seconds(), Connected: w.Connected,
			Capabilities: w.Capabilities, Running: w.Running,
		})
	}
	return printList(c, shown, "workers", "WORKER HOST PROCESS VERSION STATE HEARTBEAT RUNNING", workerRow)
}

func workerRow(w workerJSON) []string {
	var running []string
	for _, r := range w.Running {
		running = append(running, strings.TrimSpace(r.Stage+" "+shortID(r.Task)+" "+progressRow(r, "").String()))
	}
	return []string{
		shortID(w.ID), usererr.Printable(w.Host), fmt.Sprint(w.PID), usererr.Printable(w.Version), w.State,
		console.Duration(seconds(w.HeartbeatAge)) + " ago", strings.Join(running, "; "),
	}
}
