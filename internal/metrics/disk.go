package metrics

import (
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// diskWithin is how long a disk may take to say how full it is. One on a network
// may never answer, and nothing can be done about a call that waits for it.
const diskWithin = 500 * time.Millisecond

// diskCollector tells how much room there is.
type diskCollector struct {
	dirs       []*disk
	free, size *prometheus.Desc
}

func newDiskCollector(dirs []string) *diskCollector {
	c := &diskCollector{
		free: desc("disk_free_bytes", "Room left, for a process without privileges, on the disk that holds a directory.", "dir"),
		size: desc("disk_size_bytes", "Size of the disk that holds a directory.", "dir"),
	}
	seen := make(map[string]bool)
	for _, dir := range dirs {
		if !seen[dir] {
			seen[dir] = true
			c.dirs = append(c.dirs, &disk{dir: dir, statfs: syscall.Statfs})
		}
	}
	return c
}

// Describe makes it a prometheus.Collector.
func (c *diskCollector) Describe(to chan<- *prometheus.Desc) {
	to <- c.free
	to <- c.size
}

// Collect makes it a prometheus.Collector.
func (c *diskCollector) Collect(to chan<- prometheus.Metric) {
	late := make(chan struct{})
	deadline := time.AfterFunc(diskWithin, func() { close(late) })
	defer deadline.Stop()
	asked := make([]*reading, len(c.dirs))
	for i, d := range c.dirs {
		asked[i] = d.ask()
	}
	for i, d := range c.dirs {
		r := asked[i]
		select {
		case <-r.done:
		case <-late:
		}
		if r.known() {
			to <- prometheus.MustNewConstMetric(c.free, prometheus.GaugeValue, r.free, d.dir)
			to <- prometheus.MustNewConstMetric(c.size, prometheus.GaugeValue, r.size, d.dir)
		}
	}
}

// disk is a disk that may not answer. Whoever asks meanwhile waits for the same
// answer, so that one goroutine stays behind, until the disk answers, and not one
// per scrape.
type disk struct {
	dir    string
	statfs func(string, *syscall.Statfs_t) error

	mu    sync.Mutex
	asked *reading // nil where nobody waits
}

type reading struct {
	done       chan struct{} // closed once the rest is there
	err        error
	free, size float64
}

// known reports whether the disk has answered, and how full it is.
func (r *reading) known() bool {
	select {
	case <-r.done:
		return r.err == nil
	default:
		return false
	}
}

func (d *disk) ask() *reading {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.asked != nil {
		return d.asked
	}
	r := &reading{done: make(chan struct{})}
	d.asked = r
	go func() {
		var st syscall.Statfs_t
		r.err = d.statfs(d.dir, &st)
		r.free, r.size = float64(st.Bavail)*float64(st.Bsize), float64(st.Blocks)*float64(st.Bsize)
		d.mu.Lock()
		d.asked = nil
		d.mu.Unlock()
		close(r.done)
	}()
	return r
}
