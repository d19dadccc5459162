// Package monitoring holds only tests. They check docs/monitoring with Prometheus's own parser
// against what a process exports.
package monitoring
