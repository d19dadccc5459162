package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// databaseCollector exports the figures of a Database.
type databaseCollector struct {
	db *Database

	up, age, took          *prometheus.Desc
	tasks, oldest, paused  *prometheus.Desc
	dead                   *prometheus.Desc
	workers, heartbeat     *prometheus.Desc
	outbox, outboxOldest   *prometheus.Desc
	outboxHeld, outboxAge  *prometheus.Desc
	webhooks               *prometheus.Desc
	pending, pendingOldest *prometheus.Desc
	webhookDead            *prometheus.Desc
}

func newDatabaseCollector(db *Database) *databaseCollector {
	return &databaseCollector{
		db:   db,
		up:   desc("database_up", "1 if the database answered the last query for these figures, otherwise 0."),
		age:  desc("database_snapshot_age_seconds", "Age of the figures of the database."),
		took: desc("database_snapshot_duration_seconds", "Duration of the query for the figures of the database."),
		tasks: desc("tasks",
			"Tasks by stage and its state: ready to be claimed, scheduled for a later time, waiting for the next "+
				"attempt, inprogress or dead. Exact up to 10000; beyond that, ready is PostgreSQL's estimate "+
				"and the others are 10000.",
			"stage", "status"),
		oldest: desc("oldest_ready_seconds",
			"How long, about, the oldest ready task has been ready for a stage; 0 if none is.", "stage"),
		paused: desc("stage_paused", "1 while a stage is paused on all hosts, otherwise 0.", "stage"),
		dead: desc("dead_tasks",
			"Tasks with a dead stage; nothing happens to them until an operator retries them. Counted up to 10000."),
		workers: desc("workers", "Worker processes by state: alive, draining, or silent for longer than their lease.",
			"state"),
		heartbeat: desc("worker_heartbeat_age_seconds",
			"Time since the last heartbeat of each worker (host:pid) that has not expired.", "worker"),
		outbox: desc("outbox_pending",
			"Outbox rows that the slowest enabled webhook has not processed. Counted up to 10000."),
		outboxOldest: desc("outbox_oldest_seconds",
			"Age of the oldest outbox row that the slowest enabled webhook has not processed; 0 if there is none."),
		outboxHeld: desc("outbox_held_seconds",
			"Age of the oldest outbox row that is not visible yet, because an earlier transaction is still open; "+
				"0 if there is none."),
		outboxAge:     desc("outbox_age_seconds", "Age of the oldest outbox row; 0 if there is none."),
		webhooks:      desc("webhooks", "Webhooks by state: on or off.", "state"),
		pending:       desc("webhook_pending", "Pending deliveries to enabled webhooks. Counted up to 10000 per webhook."),
		pendingOldest: desc("webhook_oldest_seconds", "Age of the oldest pending delivery; 0 if there is none."),
		webhookDead: desc("webhook_dead",
			"Dead deliveries to enabled webhooks, until an operator retries them. Counted up to 10000 per webhook."),
	}
}

// Describe implements prometheus.Collector.
func (c *databaseCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.up, c.age, c.took, c.tasks, c.oldest, c.paused, c.dead, c.workers, c.heartbeat,
		c.outbox, c.outboxOldest, c.outboxHeld, c.outboxAge, c.webhooks, c.pending, c.pendingOldest, c.webhookDead} {
		to <- d
	}
}

// Collect implements prometheus.Collector. While the database does not answer, it
// exports the last figures, with their age; before the first answer, only database_up.
func (c *databaseCollector) Collect(to chan<- prometheus.Metric) {
	f, err := c.db.Figures(context.Background())
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(c.up, boolValue(err == nil))
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
		gauge(c.paused, boolValue(s.Paused), s.Name)
	}
	gauge(c.dead, float64(f.DeadTasks))
	states := map[string]int{workerAlive: 0, workerDraining: 0, workerSilent: 0}
	for _, w := range f.Workers {
		states[w.State]++
		gauge(c.heartbeat, w.Age.Seconds(), w.Worker)
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

// boolValue is 1 for true and 0 for false.
func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
