package simulation

import "time"

// processors run jobs in turns, as an operating system does.
type processors struct {
	s       *simulation
	cores   int
	running int
	queue   []job
	used    time.Duration
}

type job struct {
	left time.Duration
	done func()
}

// slice is how long a job runs while others wait.
const slice = time.Millisecond

// use takes processor time, then calls done.
func (p *processors) use(d time.Duration, done func()) {
	p.used += d
	p.queue = append(p.queue, job{d, done})
	p.run()
}

func (p *processors) run() {
	for p.running < p.cores && len(p.queue) > 0 {
		j := p.queue[0]
		p.queue = p.queue[1:]
		p.running++
		now := j.left
		if len(p.queue) > 0 || p.running > p.cores/2 {
			now = min(now, slice)
		}
		p.s.after(now, func() {
			p.running--
			if j.left -= now; j.left > 0 {
				p.queue = append(p.queue, j)
			} else {
				j.done()
			}
			p.run()
		})
	}
}

// disk flushes the WAL: all commits that wait share the next flush. A commit with a notification also waits for
// those before it.
type disk struct {
	s         *simulation
	flushing  bool
	waiting   []func()
	notifying bool
	notifiers []func()
}

func (d *disk) flush(done func()) {
	d.waiting = append(d.waiting, done)
	d.begin()
}

func (d *disk) begin() {
	if d.flushing || len(d.waiting) == 0 {
		return
	}
	d.flushing = true
	all := d.waiting
	d.waiting = nil
	d.s.after(d.s.Flush, func() {
		d.flushing = false
		for _, done := range all {
			done()
		}
		d.begin()
	})
}

func (d *disk) flushWithNotification(done func()) {
	d.notifiers = append(d.notifiers, done)
	d.notify()
}

func (d *disk) notify() {
	if d.notifying || len(d.notifiers) == 0 {
		return
	}
	d.notifying = true
	done := d.notifiers[0]
	d.notifiers = d.notifiers[1:]
	d.flush(func() {
		d.notifying = false
		done()
		d.notify()
	})
}
