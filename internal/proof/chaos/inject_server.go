package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// injectServerFault stops or freezes the server, and starts it again.
func (i *injector) injectServerFault(ctx context.Context, s step) error {
	repairCtx := context.WithoutCancel(ctx)
	i.serverMu.Lock()
	defer i.serverMu.Unlock()
	i.logStart(s)
	defer i.record(s.kind, noWorker)()
	if err := i.stopServer(repairCtx, s.kind); err != nil {
		return err
	}
	if err := ctxsleep.For(ctx, s.duration); err != nil {
		return err // the harness closes the server
	}
	started := time.Now()
	if s.kind == freezeServer {
		if err := i.server.Thaw(); err != nil {
			return err
		}
	} else {
		if err := i.server.Start(repairCtx); err != nil {
			return err
		}
		i.restarts.Add(1)
	}
	i.Logf("the server is available again, after a start of %.1f s", time.Since(started).Seconds())
	return nil
}

// stopServer ends the server, or freezes it. A fast stop that hangs is logged; it is not what this
// program tests.
func (i *injector) stopServer(ctx context.Context, kind faultKind) error {
	switch kind {
	case killServer:
		return i.server.Kill()
	case freezeServer:
		return i.server.Freeze()
	case restartImmediate:
		return i.server.Stop(ctx, postgres.Immediate)
	}
	fastCtx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err := i.server.Stop(fastCtx, postgres.Fast)
	if errors.Is(err, context.DeadlineExceeded) {
		i.Logf("a fast stop took more than 20 s; stopping the server immediately")
		err = i.server.Stop(ctx, postgres.Immediate)
	}
	return err
}

// promoteAfter is how long the primary is away before the standby is promoted.
const promoteAfter = 2 * time.Second

const (
	standbyName    = "standby"
	standbyTimeout = time.Minute // until the standby is synchronous
)

// startStandby adds a synchronous standby to the server.
func (i *injector) startStandby(ctx context.Context) (err error) {
	if i.standby, err = i.server.Standby(ctx, standbyName); err != nil {
		return err
	}
	if err := i.server.Set(ctx, "synchronous_standby_names", standbyName); err != nil {
		return err
	}
	const isSyncSQL = "select exists (select from pg_stat_replication where sync_state = 'sync')"
	return i.withConn(ctx, func(conn *pgx.Conn) error {
		isSync, err := proofkit.Poll(ctx, standbyTimeout, 20*ms, func() (isSync bool, err error) {
			err = conn.QueryRow(ctx, isSyncSQL).Scan(&isSync)
			return isSync, err
		})
		if err != nil || !isSync {
			return fmt.Errorf("the standby is not synchronous after %v: %w", standbyTimeout, err)
		}
		i.Logf("primary at %s, synchronous standby at %s", i.server.Addr(), i.standby.Addr())
		return nil
	})
}

// failOver takes the primary away, and promotes the standby some time later. The standby is the
// server from then on.
func (i *injector) failOver(ctx context.Context, s step) error {
	defer i.record(s.kind, noWorker)()
	if s.kind == failoverReadOnly {
		if err := i.server.Set(ctx, "default_transaction_read_only", "on"); err != nil {
			return err
		}
		i.Logf("the primary refuses to write (default_transaction_read_only=on)")
	} else {
		if err := i.server.Kill(); err != nil {
			return err
		}
		i.Logf("the primary is killed (SIGKILL)")
	}
	i.submitter.noteOutage()
	if err := ctxsleep.For(ctx, s.duration); err != nil {
		return err
	}
	if err := i.standby.Promote(ctx); err != nil {
		return err
	}
	i.server, i.standby = i.standby, i.server
	i.Logf("the standby is promoted")
	return nil
}
