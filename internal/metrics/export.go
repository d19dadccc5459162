package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// databaseCollector tells what a Database knows.
type databaseCollector struct {
	db *Database

	up, age, took          *prometheus.Desc
	tasks, oldest, paused  *prometheus.Desc
	dead                   *prometheus.Desc
	workers, beat          *prometheus.Desc
	outbox, outboxOldest   *prometheus.Desc
	outboxHeld, outboxAge  *prometheus.Desc
	webhooks               *prometheus.Desc
	pending, pendingOldest *prometheus.Desc
	webhookDead            *prometheus.Desc
}

func newDatabaseCollector(db *Database) *databaseCollector {
	return &databaseCollector{
		db:   db,
		up:   desc("database_up", "1 where the database answered when it was last asked for the figures of all processes, else 0."),
		age:  desc("database_snapshot_age_seconds", "How old the figures of all processes are: what else is told of the database is from then."),
		took: desc("database_snapshot_duration_seconds", "How long it took to ask for the figures of all processes."),
		tasks: desc("tasks", "Tasks, by stage and how that stands: ready to be claimed, scheduled for the time it was submitted for, waiting for the next attempt, inprogress or dead. "+
			"Exact up to 10000; of more than that, ready is an estimate of PostgreSQL's and others are 10000.", "stage", "status"),
		oldest:       desc("oldest_ready_seconds", "For how long, about, the oldest task that is ready for a stage has been; 0 where none is.", "stage"),
		paused:       desc("stage_paused", "1 while a stage is not to be claimed on any host, else 0.", "stage"),
		dead:         desc("dead_tasks", "Tasks of which a stage died: nothing happens to them until somebody has them done again. At most 10000 are counted."),
		workers:      desc("workers", "Processes that work on the pipeline, by state: alive, draining, or silent for longer than they may be.", "state"),
		beat:         desc("worker_heartbeat_age_seconds", "Time since the last sign of life of each process that was not given up, named host:pid.", "worker"),
		outbox:       desc("outbox_pending", "Rows of the outbox that the slowest webhook which is on has not seen yet. At most 10000 are counted."),
		outboxOldest: desc("outbox_oldest_seconds", "Age of the oldest row of the outbox that the slowest webhook which is on has not seen yet; 0 where there is none."),
		outboxHeld: desc("outbox_held_seconds", "Age of the oldest row of the outbox that nobody is shown, because a transaction which wrote before it is still open; "+
			"0 where there is none."),
		outboxAge:     desc("outbox_age_seconds", "Age of the oldest row of the outbox, whoever has seen it; 0 where there is none."),
		webhooks:      desc("webhooks", "Webhooks, by whether they are delivered to: on or off.", "state"),
		pending:       desc("webhook_pending", "Deliveries that are still to be made to webhooks which are on. At most 10000 are counted of each."),
		pendingOldest: desc("webhook_oldest_seconds", "Age of the oldest delivery that is still to be made; 0 where there is none."),
		webhookDead:   desc("webhook_dead", "Deliveries to webhooks which are on that were given up, until they are made again by hand. At most 10000 are counted of each."),
	}
}

// Describe makes it a prometheus.Collector.
func (c *databaseCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.up, c.age, c.took, c.tasks, c.oldest, c.paused, c.dead, c.workers, c.beat,
		c.outbox, c.outboxOldest, c.outboxHeld, c.outboxAge, c.webhooks, c.pending, c.pendingOldest, c.webhookDead} {
		to <- d
	}
}

// Collect makes it a prometheus.Collector. What the database said last is told
// also while it is away, with its age; where it never said anything, only that.
func (c *databaseCollector) Collect(to chan<- prometheus.Metric) {
	f, err := c.db.Figures(context.Background())
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(c.up, flag(err == nil))
	if f.At.IsZero() {
		return
	}
	gauge(c.age, time.Since(f.At).Seconds())
	gauge(c.took, f.Took.Seconds())
	for _, s := range f.Stages {
		gauge(c.tasks, float64(s.Ready), s.Name, "ready")
		gauge(c.tasks, float64(s.Scheduled), s.Name, "scheduled")
		gauge(c.tasks, float64(s.Waiting), s.Name, "waiting")
		gauge(c.tasks, float64(s.InProgress), s.Name, "inprogress")
		gauge(c.tasks, float64(s.Dead), s.Name, "dead")
		gauge(c.oldest, s.OldestReady.Seconds(), s.Name)
		gauge(c.paused, flag(s.Paused), s.Name)
	}
	gauge(c.dead, float64(f.DeadLetters))
	states := map[string]int{workerAlive: 0, workerDraining: 0, workerSilent: 0}
	for _, w := range f.Workers {
		states[w.State]++
		gauge(c.beat, w.Age.Seconds(), w.Worker)
	}
	for state, n := range states {
		gauge(c.workers, float64(n), state)
	}
	gauge(c.outbox, float64(f.OutboxPending))
	gauge(c.outboxOldest, f.OutboxOldest.Seconds())
	if f.OutboxHeld >= 0 {
		gauge(c.outboxHeld, f.OutboxHeld.Seconds())
	}
	gauge(c.outboxAge, f.OutboxAge.Seconds())
	gauge(c.webhooks, float64(f.WebhooksOn), "on")
	gauge(c.webhooks, float64(f.WebhooksOff), "off")
	gauge(c.pending, float64(f.WebhookPending))
	gauge(c.pendingOldest, f.WebhookOldest.Seconds())
	gauge(c.webhookDead, float64(f.WebhookDead))
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
