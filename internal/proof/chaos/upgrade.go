package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
	"github.com/cuelight/cuelight/store"
)

// newcomers is the number of workers that start with this version while the tables are still old: the last
// ones with the database.
const newcomers = 2

func isNewcomer(worker int) bool { return worker >= workers-newcomers && worker < workers }

// upgradeTimes say when each step of an upgrade begins, since the first fault may.
type upgradeTimes struct{ newcomers, migration, replacement time.Duration }

func timesOfUpgrade(duration time.Duration) upgradeTimes {
	return upgradeTimes{newcomers: duration / 6, migration: duration / 4, replacement: duration / 2}
}

const (
	// migrationTime is how long after its beginning a migration meets no fault that stops all work.
	migrationTime = 5 * time.Second
	// maxUpgradeFault is the longest fault of a run with -upgrade, so that every process can be replaced.
	maxUpgradeFault = 15 * time.Second
)

// newUpgradePlan is the plan of a run with -upgrade: that of the seed, without deletions and faults of a newcomer before newcomers
// work, faults of the first worker before it is replaced, faults that stop all work around the migration, and faults that last too
// long. The first worker may be the only one that works until the newcomers do.
func newUpgradePlan(seed uint64, duration time.Duration) plan {
	t := timesOfUpgrade(duration)
	return slices.DeleteFunc(newPlan(seed, duration), func(s step) bool {
		stopsAllWork := slices.Contains(serverFaults[:], s.kind) || s.kind == disableTriggers
		return s.kind.needsDaemon() || s.duration > maxUpgradeFault ||
			(isNewcomer(s.worker) || s.kind == deleteTasks) && s.at < t.migration+migrationTime ||
			s.worker == 0 && s.at < t.replacement ||
			stopsAllWork && s.at < t.migration+migrationTime && s.at+s.duration > t.newcomers-recoveryTime
	})
}

// upgrade is what a run with -upgrade knows besides others.
type upgrade struct {
	program   string    // chaos of the earlier revision
	remover   *remover  // of the earlier revision
	migrated  time.Time // when the tables were upgraded
	from, to  time.Time // the beginning of the migration, and the end of the replacement
	migration time.Duration
	failures  []string // of the migration
	minWaits  int      // that no fault may disturb
}

// minWaitsPerSecond is how many waits that no fault disturbs a run must have for each second of its duration.
const minWaitsPerSecond = 10

// buildRevision builds the chaos of the earlier revision, and creates the tables with its SQL.
func (h *harness) buildRevision(ctx context.Context) (err error) {
	tree, err := os.MkdirTemp("", "cuelight-chaos-revision-")
	if err != nil {
		return err
	}
	h.cleanups = append(h.cleanups, func() error { return os.RemoveAll(tree) })
	h.Logf("building revision %s", h.options.upgrade)
	if err := proofkit.CheckOut(ctx, h.options.upgrade, tree); err != nil {
		return err
	}
	const tables = "internal/proof/chaos/tables"
	here := os.DirFS(filepath.Join(proofkit.ProjectDir(), tables))
	if err := errors.Join(os.RemoveAll(filepath.Join(tree, tables)), os.CopyFS(filepath.Join(tree, tables), here)); err != nil {
		return err
	}
	programs := filepath.Join(tree, "programs")
	if err := os.Mkdir(programs, 0o755); err != nil {
		return err
	}
	if err := proofkit.Execute(ctx, "env", "CGO_ENABLED=0", "GOWORK=off", "go", "build", "-C", tree,
		"-trimpath", "-buildvcs=false", "-o", programs, "./internal/proof/chaos", "./"+tables); err != nil {
		return err
	}
	nodes, err := json.Marshal(nodes)
	if err != nil {
		return err
	}
	h.upgrade.program = filepath.Join(programs, "chaos")
	tablesProgram, args := filepath.Join(programs, "tables"), []string{h.server.URL(database), pipelineName, string(nodes)}
	if err := proofkit.Execute(ctx, tablesProgram, append([]string{"create"}, args...)...); err != nil {
		return err
	}
	h.upgrade.remover = newRemover(h.Log, tablesProgram, append([]string{"remove"}, args...)...)
	h.onExit(h.upgrade.remover.close)
	return h.upgrade.remover.start()
}

// checkOlder returns an error unless this version can upgrade the tables.
func (h *harness) checkOlder(ctx context.Context) error {
	return h.withConn(ctx, func(conn *pgx.Conn) error {
		if err := store.New(conn, graph()).Check(ctx); !errors.Is(err, store.ErrSchemaOlder) {
			return fmt.Errorf("%s has no tables of an earlier version that can be upgraded: %w", h.options.upgrade, err)
		}
		return nil
	})
}

// runUpgrade starts the newcomers, upgrades the tables, and replaces the processes of the earlier revision one by one.
func (h *harness) runUpgrade(ctx context.Context) error {
	t := timesOfUpgrade(h.options.duration)
	if err := ctxsleep.For(ctx, time.Until(h.Started().Add(t.newcomers))); err != nil {
		return err
	}
	if err := h.startAndMigrate(ctx, t); err != nil {
		return err
	}
	return h.replaceAll(ctx, t)
}

// startAndMigrate starts the newcomers and upgrades the tables. Faults that stop all work and come late wait meanwhile.
func (h *harness) startAndMigrate(ctx context.Context, t upgradeTimes) error {
	h.serverMu.Lock()
	defer h.serverMu.Unlock()
	h.triggersMu.RLock()
	defer h.triggersMu.RUnlock()
	h.Logf("%d workers of this version start", newcomers)
	for _, s := range h.workers.slots {
		if isNewcomer(s.number) {
			if err := s.start(); err != nil {
				return err
			}
		}
	}
	if err := ctxsleep.For(ctx, time.Until(h.Started().Add(t.migration))); err != nil {
		return err
	}
	if err := h.migrate(ctx); err != nil {
		return err
	}
	return ctxsleep.For(ctx, migrationTime)
}

// replaceAll replaces the processes of the earlier revision one by one.
func (h *harness) replaceAll(ctx context.Context, t upgradeTimes) error {
	if err := ctxsleep.For(ctx, time.Until(h.Started().Add(t.replacement))); err != nil {
		return err
	}
	for _, s := range h.workers.all() {
		if s.program == "" {
			continue
		}
		if err := ctxsleep.For(ctx, h.options.duration/60); err != nil {
			return err
		}
		if err := h.replace(s); err != nil {
			return err
		}
	}
	h.upgrade.to = time.Now()
	h.Logf("all processes have this version")
	return nil
}

// migrate upgrades the tables under load, while a transaction is open that delays it.
func (h *harness) migrate(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	opened, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		h.delayMigration(ctx, sync.OnceFunc(func() { close(opened) }))
	}()
	defer func() { cancel(); <-ended }()
	select {
	case <-opened:
	case <-ended:
	}
	h.Logf("the migration begins")
	h.upgrade.from = time.Now()
	for {
		var r store.MigrateResult
		err := h.withConn(ctx, func(conn *pgx.Conn) (err error) {
			r, err = store.New(conn, graph()).Migrate(ctx)
			return err
		})
		h.upgrade.migrated = time.Now()
		h.upgrade.migration = h.upgrade.migrated.Sub(h.upgrade.from)
		if err == nil {
			h.Logf("migrated from version %d to %d in %d ms", r.From, store.SchemaVersion, h.upgrade.migration.Milliseconds())
			h.submitter.tablesAreOlder.Store(false)
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		h.upgrade.failures = append(h.upgrade.failures, "the migration failed: "+progresslog.Brief(err))
		h.Logf("%s", h.upgrade.failures[len(h.upgrade.failures)-1])
		_ = ctxsleep.For(ctx, time.Second) // the next try sees that ctx is done
	}
}

// migrationDelay is how long an open transaction keeps the migration from locking the table of tasks.
const migrationDelay = 4 * time.Second

const isMigrationWaitingSQL = `
select exists (select from pg_locks where relation = 'chaos_tasks'::regclass and mode = 'AccessExclusiveLock' and not granted)`

// delayMigration opens a transaction that locks a finished task, and ends it when the migration has waited for a while. The
// transaction delays nobody else, but all who come after a migration that waits for it.
func (h *harness) delayMigration(ctx context.Context, opened func()) {
	err := h.withConn(ctx, func(conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			const lockOneSQL = "select from chaos_tasks where publish_status = 'completed' limit 1 for update"
			if _, err := tx.Exec(ctx, lockOneSQL); err != nil {
				return err
			}
			opened()
			// Building indexes waits for transactions that have a snapshot at the time, so this one asks nothing more.
			if err := h.withConn(ctx, func(conn *pgx.Conn) error {
				_, err := proofkit.Poll(ctx, time.Minute, 20*ms, func() (isWaiting bool, err error) {
					err = conn.QueryRow(ctx, isMigrationWaitingSQL).Scan(&isWaiting)
					return isWaiting, err
				})
				return err
			}); err != nil {
				return err
			}
			h.Logf("an open transaction delays the migration")
			return ctxsleep.For(ctx, migrationDelay)
		})
	})
	if err != nil && ctx.Err() == nil {
		h.Logf("the transaction that delays the migration ended: %s", progresslog.Brief(err))
	}
}

// replace drains a process of the earlier revision and starts one of this version. Faults of it and of the server wait
// meanwhile: without the database a drain cannot release claims.
func (h *harness) replace(s *slot) error {
	for _, one := range h.workers.spared(s) {
		one.faults.Lock()
		defer one.faults.Unlock()
	}
	h.serverMu.Lock()
	defer h.serverMu.Unlock()
	h.Logf("replacing %s", s.name)
	return s.replace()
}
