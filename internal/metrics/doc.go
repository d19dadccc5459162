// Package metrics exports the metrics of a process and its database to Prometheus.
//
//	m := metrics.New(metrics.Options{
//		Graph: graph, Slots: slots, Version: version, Pool: pool, Dirs: dirs,
//		Database: metrics.NewDatabase(pool, graph),
//	})
//	runner.Observe = m.Observe
//	listen.OnChange = m.ObserveListener
//	mux.Handle("GET /metrics", m.Handler())
//
// Call [New] first. Methods such as [Metrics.Observe] count what the process does, and
// never block. A [Database] reads the metrics that all processes share (queues, ages,
// workers, webhooks) with one statement and caches them for some seconds, so that the
// cost does not depend on the number of scrapes.
//
// Every series has a bounded set of label values: stages, outcomes, states, event types,
// directories, and workers as host:pid. No label contains a task.
//
// The package has its own registry, and no goroutine except one per disk that does not
// answer. It does not log, and does not judge whether the process is healthy: see
// package health, and docs/monitoring, which describes every metric and has alerts.
package metrics
