package store

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Worker is one process that works on a pipeline.
type Worker struct {
	ID ID
	// Name is for operators, and need not be unique; see [CheckWorkerName]. Default: Host.
	Name    string
	Host    string
	PID     int
	Version string
	// Principal is who registered a remote worker, one without a database, such as
	// "key k3j9x2mq (build server)". It is empty for a worker that uses the database itself.
	Principal    string
	Capabilities json.RawMessage
	// Metadata is a JSON object of up to 10 KiB, as PostgreSQL writes it. Cuelight shows it
	// and does not use it.
	Metadata json.RawMessage
	// Lease is how long it may miss its heartbeats before it is lost. Default
	// [DefaultLease].
	Lease time.Duration
	// ProcessIdentity distinguishes it from other processes of the host with the same PID:
	// the boot, the process namespace and the start time. Empty where they are not known.
	ProcessIdentity string
	Connected       bool // its database session is open, or a remote worker's coordinator holds the contact
	StartedAt       time.Time
	HeartbeatAt     time.Time
	HeartbeatAge    time.Duration // by the database's clock
	StoppedAt       *time.Time    // it deregistered, or was stopped
	LostAt          *time.Time    // its lease ran out
	DrainAt         *time.Time    // it was asked to drain
	Running         []Running
}

// Kind is local for a worker that uses the database itself, and remote for one that was
// registered by a coordinator.
func (w Worker) Kind() string {
	if w.Principal != "" {
		return "remote"
	}
	return "local"
}

// State is the worker's state when its row was read: busy (it runs attempts), idle (it runs
// none), draining (it finishes its attempts and stops), silent (it misses heartbeats, and
// may soon be lost), stopped (it deregistered, or its key was disabled or revoked), or lost (it was
// expired).
func (w Worker) State() string {
	switch {
	case w.LostAt != nil:
		return "lost"
	case w.StoppedAt != nil:
		return "stopped"
	case w.HeartbeatAge > DisconnectGrace(w.Lease):
		return "silent"
	case w.DrainAt != nil:
		return "draining"
	case len(w.Running) > 0:
		return "busy"
	}
	return "idle"
}

// Running is an attempt in progress, as its worker last reported it. Its JSON does not
// contain the fencing token.
type Running struct {
	Task    ID      `json:"task_id"`
	Stage   string  `json:"stage"`
	Part    int     `json:"part,omitempty"`  // of a divided stage, counted from 1
	Parts   int     `json:"parts,omitempty"` // how many it has
	Token   ID      `json:"-"`
	Attempt int     `json:"attempt"`
	Percent float64 `json:"percent"` // 0 to 100; negative: not known
	Speed   float64 `json:"speed,omitempty"`
	ETA     float64 `json:"eta_s,omitempty"` // seconds left; 0: not known
	Note    string  `json:"note,omitempty"`
}

// Activity is the note without the number at its end, which counts steps to show that the work goes on.
func (r Running) Activity() string {
	text := strings.TrimRight(r.Note, "0123456789")
	if !strings.HasSuffix(text, " ") {
		text = r.Note
	}
	return strings.TrimSpace(text)
}

// StoredRunning is [Running] as JSON in the column workers.running and in progress
// events; package engine writes it.
type StoredRunning struct {
	Task    ID      `json:"task"`
	Stage   string  `json:"stage"`
	Part    int     `json:"part,omitempty"`
	Parts   int     `json:"parts,omitempty"`
	Token   ID      `json:"token"`
	Attempt int     `json:"attempt"`
	Percent float64 `json:"percent"`
	Speed   float64 `json:"speed,omitempty"`
	ETA     float64 `json:"eta_s,omitempty"`
	Note    string  `json:"note,omitempty"`
}

// DefaultLease is how long a worker may miss its heartbeats before it is lost.
const DefaultLease = 36 * time.Second

// HeartbeatInterval is the time between two heartbeats of a worker: 2 s, or an eighteenth of its lease if that is less, or a
// sixtieth if that is more.
func HeartbeatInterval(lease time.Duration) time.Duration {
	return max(min(lease/18, 2*time.Second), lease/60)
}

// DisconnectGrace is how long a worker whose database session has ended may miss its heartbeats
// before it is lost: 7 s, or a fifth of its lease if that is less, or a seventeenth if that is more.
func DisconnectGrace(lease time.Duration) time.Duration {
	return max(min(lease/5, 7*time.Second), lease/17)
}

const workerColumns = `
id, name, host, pid, version, principal, capabilities, metadata, extract(epoch from lease)::float8, process_identity,
       stopped_at is null and lost_at is null
         and (principal <> '' and session is null or cuelight_connected(w.session)), started_at, heartbeat_at,
       extract(epoch from now() - heartbeat_at)::float8, stopped_at, lost_at, drain_at, running`

const workersSQL = `
/* list workers */
select ` + workerColumns + `
  from {workers} w
 where ($1 or (stopped_at is null and lost_at is null))
 order by id`

// Workers lists the workers of the pipeline; with all, stopped and lost ones, too, of which
// there may be very many: see [Store.StoppedWorkers].
func (s *Store) Workers(ctx context.Context, all bool) ([]Worker, error) {
	return query(ctx, s, "list workers", workersSQL, scanWorker, all)
}

const findWorkersSQL = `
/* find workers */
select ` + workerColumns + `
  from {workers} w
 where id = any($1::uuid[])`

// FindWorkers returns those of some workers that are neither stopped nor lost.
func (s *Store) FindWorkers(ctx context.Context, ids []ID) ([]Worker, error) {
	workers, err := query(ctx, s, "find workers", findWorkersSQL, scanWorker, ids)
	// A condition in the statement would make it read all live workers instead of the primary key.
	live := slices.DeleteFunc(workers, func(w Worker) bool { return w.StoppedAt != nil || w.LostAt != nil })
	return live, err
}

const workersOfSQL = `
/* list workers of a principal */
select ` + workerColumns + `
  from {workers} w
 where principal = $1 and stopped_at is null and lost_at is null
 order by id`

// WorkersOf lists the workers of the pipeline that a principal has registered, without stopped and lost ones.
func (s *Store) WorkersOf(ctx context.Context, principal string) ([]Worker, error) {
	return query(ctx, s, "list workers of a principal", workersOfSQL, scanWorker, principal)
}

// stoppedWorkersSQL reads along the primary key, because most workers have stopped.
const stoppedWorkersSQL = `
/* list stopped workers */
select ` + workerColumns + `
  from {workers} w
 where (stopped_at is not null or lost_at is not null)
   and id < coalesce($1::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
 order by id desc
 limit $2`

// StoppedWorkers lists stopped and lost workers, the newest first: up to limit, by default
// 100, that registered before a worker; zero for the first page.
func (s *Store) StoppedWorkers(ctx context.Context, before ID, limit int) ([]Worker, error) {
	return query(ctx, s, "list stopped workers", stoppedWorkersSQL, scanWorker, before, cmp.Or(max(limit, 0), 100))
}

func scanWorker(row pgx.CollectableRow) (w Worker, err error) {
	var lease, age float64
	var running []StoredRunning
	err = row.Scan(&w.ID, &w.Name, &w.Host, &w.PID, &w.Version, &w.Principal, &w.Capabilities, &w.Metadata,
		&lease, &w.ProcessIdentity, &w.Connected, &w.StartedAt, &w.HeartbeatAt, &age, &w.StoppedAt, &w.LostAt, &w.DrainAt,
		&running)
	for _, d := range running {
		w.Running = append(w.Running, Running(d))
	}
	w.Lease, w.HeartbeatAge = time.Duration(lease*float64(time.Second)), time.Duration(age*float64(time.Second))
	return w, err
}
