// Package metrics tells Prometheus what a process and its database do.
//
//	m := metrics.New(metrics.Options{
//		Graph: graph, Slots: slots, Version: version, Pool: pool, Dirs: dirs,
//		Database: metrics.NewDatabase(pool, graph, metrics.DatabaseOptions{}),
//	})
//	runner.Observe = m.Observe
//	listen.OnChange = m.Listening
//	mux.Handle("GET /metrics", m.Handler())
//
// Begin with [New]. What the process itself does is counted as it happens, by
// [Metrics.Observe] and its like, which never block. What all processes have in
// common — how much is ready, how old it is, who works — is asked of the database
// by a [Database], in one statement whose answer is kept for some seconds, so that
// it costs the same however often, and by however many, it is scraped.
//
// Every series has a known number of values: stages, outcomes, states, types of
// events, directories, and workers as host:pid. No task is named in any.
//
// It keeps a registry of its own, and no goroutine but one per disk that does not
// answer. It does not log, and does not know whether anything is wrong: for a yes
// or no see the package health, for alerts docs/monitoring, where each metric is
// described.
package metrics
