package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cuelight/cuelight/internal/diskspace"
)

// diskTimeout limits how long a scrape waits for a disk. A network disk may never
// answer, and the system call cannot be interrupted.
const diskTimeout = 500 * time.Millisecond

// diskCollector exports the free space of disks.
type diskCollector struct {
	dirs       []*disk
	free, size *prometheus.Desc
}

func newDiskCollector(dirs []string) *diskCollector {
	c := &diskCollector{
		free: desc("disk_free_bytes", "Free space for unprivileged processes on the disk of a directory.", "dir"),
		size: desc("disk_size_bytes", "Size of the disk of a directory.", "dir"),
	}
	seen := make(map[string]bool)
	for _, dir := range dirs {
		if !seen[dir] {
			seen[dir] = true
			c.dirs = append(c.dirs, &disk{dir: dir, freeSpace: diskspace.Free})
		}
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *diskCollector) Describe(to chan<- *prometheus.Desc) {
	to <- c.free
	to <- c.size
}

// Collect implements prometheus.Collector.
func (c *diskCollector) Collect(to chan<- prometheus.Metric) {
	timeout := make(chan struct{})
	timer := time.AfterFunc(diskTimeout, func() { close(timeout) })
	defer timer.Stop()
	readings := make([]*reading, len(c.dirs))
	for i, d := range c.dirs {
		readings[i] = d.read()
	}
	for i, d := range c.dirs {
		r := readings[i]
		select {
		case <-r.done:
		case <-timeout:
		}
		if r.isKnown() {
			to <- prometheus.MustNewConstMetric(c.free, prometheus.GaugeValue, float64(r.free), d.dir)
			to <- prometheus.MustNewConstMetric(c.size, prometheus.GaugeValue, float64(r.size), d.dir)
		}
	}
}

// disk is a disk that may not answer. Concurrent scrapes wait for the same reading, so
// that a hanging disk holds one goroutine and not one per scrape.
type disk struct {
	dir       string
	freeSpace func(dir string) (free, size int64, err error)

	mu      sync.Mutex
	current *reading // nil between two readings
}

type reading struct {
	done       chan struct{} // closed when the fields below are set
	err        error
	free, size int64
}

// isKnown reports whether the disk has answered without an error.
func (r *reading) isKnown() bool {
	select {
	case <-r.done:
		return r.err == nil
	default:
		return false
	}
}

// read starts a reading, or returns the current one.
func (d *disk) read() *reading {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current != nil {
		return d.current
	}
	r := &reading{done: make(chan struct{})}
	d.current = r
	go func() {
		r.free, r.size, r.err = d.freeSpace(d.dir)
		d.mu.Lock()
		d.current = nil
		d.mu.Unlock()
		close(r.done)
	}()
	return r
}
