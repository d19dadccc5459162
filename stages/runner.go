package stages

import (
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/store"
)

// Runner works on a pipeline: it claims ready tasks while it has free slots, runs the
// stages' Work, and reports the outcomes. Pipeline and Pool must be set; every other
// field has a useful zero value.
type Runner struct {
	Pipeline *Pipeline

	// Pool is the database. The Runner uses up to half of its connections for queries
	// of Work, one for heartbeats, one for exchanges, and one to listen.
	Pool *pgxpool.Pool

	// Wakes reports which stages may have ready tasks. Default: a notify.Listener on
	// Pool. A value with a Run method is run by the Runner.
	Wakes WakeSource

	// Backend replaces the database, for tests. Default: the tables in Pool.
	Backend Backend

	// Grace is how long attempts may go on after Run's context is done, before they are
	// cancelled and released. Default 30 s; negative for none.
	Grace time.Duration

	// Abort ends the grace at once when it is closed.
	Abort <-chan struct{}

	// SweepInterval is the time between two sweeps, varied by a fifth. Default 15 s. Where sweeps have found nothing that a
	// notification should have announced for 20 intervals, they become rarer, up to every four intervals; after
	// one did, they follow every quarter of it for four intervals. They do not become rarer without notifications, or with AgeAfter.
	SweepInterval time.Duration

	// Lease is how long this process may miss its heartbeats before other workers take its
	// claims. It sends one every [store.HeartbeatInterval], and cancels its attempts after five sixths of it without an answer. When the
	// process dies, the end of its session shows it, and the others take its claims after
	// [store.DisconnectGrace]. So the session of Wakes should not end before the Lease when
	// the network is interrupted (notify.Options.KeepSession). Default 36 s.
	Lease time.Duration

	// AgeAfter is how long a task waits behind tasks of higher priority before it is claimed
	// first, the oldest first. Sweeps find such tasks, so add a SweepInterval. Default 0:
	// priority is strict, and tasks of low priority may wait for ever.
	AgeAfter time.Duration

	// MaxRunningPerUser limits the tasks of each user that have started and are not finished, not counting those that wait for a
	// retry of their first stage: no more are started by this process. Give all processes the same. Default 0: no limit.
	MaxRunningPerUser int

	// KeepEvents is how long events are kept; with several processes the shortest counts.
	// Default 7 days; negative for ever.
	KeepEvents time.Duration

	// Retention says what this process deletes, and what it does with deleted tasks. Default nil: nothing, because it
	// may not have their files.
	Retention *Retention

	// OnlyTasks are the only tasks to work on. Default nil: all.
	OnlyTasks []store.ID

	// Name is this process's in the list of workers, the history and the events; see
	// [store.CheckWorkerName]. It need not be unique. Default: the host's name.
	Name string

	// Version and Capabilities, a JSON object, describe this process in the list of workers. Tasks
	// may require and prefer what the members labels and encoders list; see [store.Placement]. The
	// Runner adds the member stages: the names of those that this process has slots for.
	Version      string
	Capabilities json.RawMessage

	// OnAlive is called by each loop of the Runner, with its name, at least once a minute,
	// even while the database does not answer. Without it the process hangs.
	OnAlive func(loop string)

	// Observe receives events. It must not block, and several goroutines may call it at once.
	Observe func(Event)
}
