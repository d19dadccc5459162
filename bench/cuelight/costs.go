package cuelight

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// costMeter measures what exchanges cost, on one connection, without a Runner.
type costMeter struct {
	engine  *engine.Engine
	store   *store.Store
	worker  store.ID
	backend int // its process id
	graph   store.Graph
	pause   func(context.Context) error
	costs   map[string]time.Duration
}

// measureCosts measures the costs that the simulation needs. Those called idle are of exchanges after a pause.
func measureCosts(ctx context.Context, url string, pause func(context.Context) error) (costs map[string]time.Duration, err error) {
	costs = make(map[string]time.Duration)
	err = harness.WithPool(ctx, url, 1, func(pool *pgxpool.Pool) error {
		s := store.New(pool, builtIn.graph())
		m := &costMeter{engine: engine.New(s.DB(), s.Graph()), store: s, graph: s.Graph(), pause: pause, costs: costs}
		if err := pool.QueryRow(ctx, "select pg_backend_pid()").Scan(&m.backend); err != nil {
			return err
		}
		if m.worker, err = m.engine.RegisterWorker(ctx, store.Worker{Host: "bench", PID: os.Getpid(), Lease: time.Hour}); err != nil {
			return err
		}
		for _, measure := range []func(context.Context) error{
			m.measureBusy, m.measureIdle, m.measureEmpty, m.measureMixed, m.measureClaims, m.measureHeartbeats,
		} {
			if err := measure(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		costs["listener"], err = measureListeners(ctx, url, pause)
	}
	return costs, err
}

// used is what some calls took.
type used struct{ backend, total time.Duration }

// measure adds what a call takes.
func (m *costMeter) measure(u *used, call func() error) error {
	backend, err := backendTime(m.backend)
	if err != nil {
		return err
	}
	started := time.Now()
	if err := call(); err != nil {
		return err
	}
	u.total += time.Since(started)
	after, err := backendTime(m.backend)
	u.backend += after - backend
	return err
}

func (m *costMeter) measureIdle(ctx context.Context) error {
	return m.measureSingle(ctx, m.pause, "idle")
}

func (m *costMeter) measureBusy(ctx context.Context) error {
	return m.measureSingle(ctx, noPause, "busy")
}

func noPause(context.Context) error { return nil }

// measureSingle takes tasks one by one through the stages. A flush is the time that an exchange with a report waits
// longer than one without.
func (m *costMeter) measureSingle(ctx context.Context, pause func(context.Context) error, pace string) error {
	const warmup, tasks = 30, 200
	var submit, claim, report used
	for i := range warmup + tasks {
		if i == warmup {
			submit, claim, report = used{}, used{}, used{}
		}
		if err := pause(ctx); err != nil {
			return err
		}
		err := m.measure(&submit, func() error {
			_, err := m.store.Submit(ctx, submission(int64(i)))
			return err
		})
		if err != nil {
			return err
		}
		spent, request := &claim, m.request(1, 0)
		for {
			var out engine.ExchangeResult
			err := m.measure(spent, func() (err error) {
				out, err = m.engine.Exchange(ctx, request)
				return err
			})
			if err != nil {
				return err
			}
			if len(out.Claims) == 0 {
				break
			}
			spent, request = &report, m.request(1)
			request.Reports = reportAll(out.Claims)
		}
	}
	m.costs["claim exchange, "+pace] = claim.backend / tasks
	m.costs["exchange, "+pace] = report.backend / (4 * tasks)
	m.costs["submit, "+pace] = submit.backend / tasks
	m.costs["process exchange"] = (claim.total - claim.backend) / tasks
	m.costs["flush"] = (report.total-report.backend)/(4*tasks) - m.costs["process exchange"]
	m.costs["submitter"] = (submit.total-submit.backend)/tasks - m.costs["flush"]
	return nil
}

// request has slots in all stages, and claims from some; from all if none is given.
func (m *costMeter) request(slots int, claimFrom ...int) engine.ExchangeRequest {
	n := len(m.graph.Stages())
	r := engine.ExchangeRequest{Worker: m.worker, FreeSlots: make([]int, n), ClaimFrom: make([]bool, n)}
	for i := range r.FreeSlots {
		r.FreeSlots[i], r.ClaimFrom[i] = slots, len(claimFrom) == 0
	}
	for _, i := range claimFrom {
		r.ClaimFrom[i] = true
	}
	return r
}

func reportAll(claims []engine.Claim) (reports []engine.Report) {
	for _, c := range claims {
		reports = append(reports, engine.Report{Task: c.Task, Stage: c.Stage, Token: c.Token, Outcome: engine.Completed})
	}
	return reports
}

// measureEmpty measures claims of one stage that find nothing.
func (m *costMeter) measureEmpty(ctx context.Context) error {
	const n = 100
	for pace, pause := range map[string]func(context.Context) error{"busy": noPause, "idle": m.pause} {
		var empty used
		for range n {
			if err := pause(ctx); err != nil {
				return err
			}
			err := m.measure(&empty, func() error {
				_, err := m.engine.Exchange(ctx, m.request(1, 0))
				return err
			})
			if err != nil {
				return err
			}
		}
		m.costs["empty exchange, "+pace] = empty.backend / n
	}
	return nil
}

// measureMixed measures exchanges that report as many tasks in each stage, which all continue.
func (m *costMeter) measureMixed(ctx context.Context) error {
	for _, perStage := range []int{2, 100} {
		const warmup, n = 8, 40
		if err := m.submit(ctx, perStage*(warmup+n)); err != nil {
			return err
		}
		var spent used
		var reports []engine.Report
		for i := range warmup + n {
			if i == warmup {
				spent = used{}
			}
			request := m.request(perStage)
			request.Reports = reports
			err := m.measure(&spent, func() error {
				out, err := m.engine.Exchange(ctx, request)
				if err == nil && i >= warmup && len(out.Claims) != 5*perStage {
					err = fmt.Errorf("%d claims, want %d", len(out.Claims), 5*perStage)
				}
				reports = reportAll(out.Claims)
				return err
			})
			if err != nil {
				return err
			}
		}
		for len(reports) > 0 { // finish them
			request := m.request(5 * perStage)
			request.Reports = reports
			out, err := m.engine.Exchange(ctx, request)
			if err != nil {
				return err
			}
			reports = reportAll(out.Claims)
		}
		m.costs[fmt.Sprintf("exchange of %d", 5*perStage)] = spent.backend / n
	}
	return nil
}

func (m *costMeter) submit(ctx context.Context, n int) error {
	subs := make([]store.Submission, n)
	for i := range subs {
		subs[i] = submission(int64(i))
	}
	_, err := m.store.SubmitAll(ctx, subs)
	return err
}

// measureClaims measures exchanges that claim a hundred tasks.
func (m *costMeter) measureClaims(ctx context.Context) error {
	const n, tasks = 20, 100
	if err := m.submit(ctx, n*tasks); err != nil {
		return err
	}
	var spent used
	for range n {
		err := m.measure(&spent, func() error {
			_, err := m.engine.Exchange(ctx, m.request(tasks, 0))
			return err
		})
		if err != nil {
			return err
		}
	}
	m.costs["claim exchange of 100"] = spent.backend / n
	return nil
}

func (m *costMeter) measureHeartbeats(ctx context.Context) error {
	const n = 100
	var spent used
	for range n {
		err := m.measure(&spent, func() error {
			_, err := m.engine.Heartbeat(ctx, engine.HeartbeatRequest{Worker: m.worker})
			return err
		})
		if err != nil {
			return err
		}
	}
	m.costs["heartbeat"] = spent.backend / n
	return nil
}

// measureListeners measures the time of the backends of a hundred listeners for each notification that is not theirs.
func measureListeners(ctx context.Context, url string, pause func(context.Context) error) (each time.Duration, err error) {
	const listeners, notifications = 100, 100
	var conns []*pgx.Conn
	defer func() {
		for _, conn := range conns {
			conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing of the measurement depends on it
		}
	}()
	var pids []int
	for range listeners {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return 0, err
		}
		conns = append(conns, conn)
		if _, err := conn.Exec(ctx, "listen nothing"); err != nil {
			return 0, err
		}
		pids = append(pids, int(conn.PgConn().PID()))
	}
	sum := func() (total time.Duration, err error) {
		for _, pid := range pids {
			d, err := backendTime(pid)
			if err != nil {
				return 0, err
			}
			total += d
		}
		return total, nil
	}
	before, err := sum()
	if err != nil {
		return 0, err
	}
	err = harness.WithConn(ctx, url, func(conn *pgx.Conn) error {
		for range notifications {
			if _, err := conn.Exec(ctx, "notify something"); err != nil {
				return err
			}
			if err := pause(ctx); err != nil { // until all have read it, so that none reads two at once
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	after, err := sum()
	return (after - before) / (listeners * notifications), err
}

// backendTime is the processor time of a process, to the nanosecond.
func backendTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), " ")
	ns, err := strconv.ParseInt(first, 10, 64)
	return time.Duration(ns), err
}
