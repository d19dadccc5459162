package main

import (
	"cmp"
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
running. A busy worker runs something, an idle one waits for tasks. A remote worker
has no database; another process speaks for it. A worker sends a heartbeat every two
seconds, more rarely if its lease is longer than two minutes (--lease of serve); one
that has missed three is silent. It is lost, and other workers take its tasks, at once
if its connection has ended too, otherwise when its lease expires. A - is what a remote
worker has not said.`,
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
	Name         string          `json:"name"`
	Kind         string          `json:"kind"`                // local or remote
	Principal    string          `json:"principal,omitempty"` // who registered a remote worker
	State        string          `json:"state"`               // busy, idle, draining, silent, stopped or lost
	Host         string          `json:"host"`
	PID          int             `json:"pid"`
	Version      string          `json:"version"`
	StartedAt    time.Time       `json:"started_at"`
	HeartbeatAge float64         `json:"heartbeat_age_s"`
	Lease        float64         `json:"lease_s"`
	Connected    bool            `json:"connected"` // its session is open
	Capabilities json.RawMessage `json:"capabilities"`
	Metadata     json.RawMessage `json:"metadata"`
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
			ID: w.ID, Name: w.Name, Kind: w.Kind(), Principal: w.Principal, State: w.State(),
			Host: w.Host, PID: w.PID, Version: w.Version, StartedAt: w.StartedAt,
			HeartbeatAge: w.HeartbeatAge.Seconds(), Lease: w.Lease.Seconds(), Connected: w.Connected,
			Capabilities: w.Capabilities, Metadata: w.Metadata, Running: w.Running,
		})
	}
	return printList(c, shown, "workers", "WORKER NAME KIND STATE HOST PROCESS VERSION HEARTBEAT OFFERS RUNNING", workerRow)
}

// workerText is a worker in a sentence. By default its name is its host's. A remote worker need not
// have given the id of its process.
func workerText(name, host string, pid int) string {
	var details []string
	if name == "" {
		name = host
	}
	if name != host {
		details = append(details, usererr.Printable(host))
	}
	if pid > 0 {
		details = append(details, fmt.Sprintf("process %d", pid))
	}
	if len(details) == 0 {
		return usererr.Printable(name)
	}
	return usererr.Printable(name) + " (" + strings.Join(details, ", ") + ")"
}

func workerRow(w workerJSON) []string {
	var running []string
	for _, r := range w.Running {
		running = append(running, strings.TrimSpace(stageText(r.Stage, r.Part, r.Parts)+" "+shortID(r.Task)+" "+progressRow(r, "").String()))
	}
	offers := store.Worker{Capabilities: w.Capabilities}.Offers()
	process := "-" // a remote worker in another language need not have said it
	if w.PID > 0 {
		process = fmt.Sprint(w.PID)
	}
	return []string{
		shortID(w.ID), usererr.Printable(w.Name), w.Kind, w.State,
		usererr.Printable(w.Host), process, cmp.Or(usererr.Printable(w.Version), "-"),
		console.Duration(seconds(w.HeartbeatAge)) + " ago", usererr.Printable(strings.Join(offers, ",")), strings.Join(running, "; "),
	}
}
