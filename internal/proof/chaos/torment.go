package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cuelight/cuelight/internal/pgserver"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/store"
)

// tormentor carries out a plan.
type tormentor struct {
	*progresslog.Log
	faults
	server  *pgserver.Server
	crew    *crew
	studio  *studio // nil without videos
	network *network

	serving         sync.Mutex // held while the server is being broken
	kills, restarts atomic.Int32
	mu              sync.Mutex
	done, missed    map[kind]int // steps that were carried out, and that could not be
}

// run does everything in the plan at its time, and returns when all is over and
// mended. Its error means that something could not be mended.
func (t *tormentor) run(ctx context.Context, p plan) error {
	t.done, t.missed = make(map[kind]int), make(map[kind]int)
	var all sync.WaitGroup
	for _, s := range p {
		if pause(ctx, time.Until(t.Started().Add(s.at))) != nil {
			break
		}
		all.Go(func() { t.do(ctx, s) })
	}
	all.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return t.mend(ctx)
}

// do carries out one step, from its beginning to its end.
func (t *tormentor) do(ctx context.Context, s step) {
	err := t.act(ctx, s)
	if ctx.Err() != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.missed[s.kind]++
		t.Logf("%s: could not: %s", s.kind, progresslog.Brief(err))
		return
	}
	t.done[s.kind]++
}

func (t *tormentor) act(ctx context.Context, s step) error {
	switch {
	case s.kind.ofWorker():
		return t.worker(ctx, s)
	case s.kind.ofDaemon():
		return t.daemon(ctx, s)
	}
	for _, k := range serverKinds {
		if s.kind == k {
			return t.breakServer(ctx, s)
		}
	}
	return t.database(ctx, s)
}

// tell says that a step begins.
func (t *tormentor) tell(s step, format string, args ...any) {
	text := string(s.kind)
	if s.worker >= 0 {
		text += fmt.Sprintf(" worker %d", s.worker+1)
	}
	if s.lasts > 0 {
		text += fmt.Sprintf(", %.1f s", s.lasts.Seconds())
	}
	t.Logf("%s%s", text, fmt.Sprintf(format, args...))
}

// worker does something to one worker, or to what it hears.
func (t *tormentor) worker(ctx context.Context, s step) error {
	seat := t.crew.seats[s.worker]
	switch s.kind {
	case kill:
		t.tell(s, "")
		t.kill(seat)
		return t.revive(ctx, seat, s.lasts)
	case power:
		return t.power(ctx, s)
	case freeze:
		return t.freeze(ctx, s)
	case cut:
		t.tell(s, "")
		seat.proxy.cut()
		return nil
	}
	t.tell(s, "")
	return t.impair(ctx, s, seat, func() error { return pause(ctx, s.lasts) })
}

func (t *tormentor) kill(seat *seat) {
	l := seat.present()
	if l.over() {
		return
	}
	l.kill()
	t.kills.Add(1)
}

func (t *tormentor) revive(ctx context.Context, seat *seat, after time.Duration) error {
	if err := pause(ctx, after); err != nil {
		return err
	}
	return seat.start()
}

// power kills a worker of whose end the server cannot hear.
func (t *tormentor) power(ctx context.Context, s step) error {
	seat := t.crew.seats[s.worker]
	t.tell(s, "")
	err := t.impair(ctx, s, seat, func() error {
		t.kill(seat)
		return pause(ctx, s.lasts)
	})
	if err != nil {
		return err
	}
	return t.revive(ctx, seat, 0)
}

// freeze stops a worker and continues it. If that takes longer than its lease,
// others have its work by then, and work on it while it goes on.
func (t *tormentor) freeze(ctx context.Context, s step) error {
	l := t.crew.seats[s.worker].present()
	if l.over() {
		return nil
	}
	t.tell(s, "")
	mended := t.begin(freeze, s.worker)
	l.freeze()
	if s.lasts > store.DefaultLease {
		file := filepath.Join(t.crew.dir, dawdlingFile)
		if err := t.listHeld(ctx, l.pid(), file); err != nil {
			t.Logf("%s: the tasks that worker %d holds: %s", s.kind, s.worker+1, progresslog.Brief(err))
		}
		defer os.Remove(file)
		defer func() { _ = pause(ctx, 3*time.Second) }() // until it has said all it has to say
	}
	err := pause(ctx, s.lasts)
	l.thaw()
	mended()
	return err
}

// modes are what a proxy does.
var modes = map[kind]mode{
	power:  {toServer: true, toClient: true},
	link:   {toServer: true, toClient: true},
	hole:   {toServer: true, toClient: true},
	deaf:   {toClient: true},
	dumb:   {toServer: true},
	hold:   {hold: true},
	delay:  {delay: 60 * ms},
	refuse: {refuse: true},
}

// impair breaks the connections of a worker for as long as something lasts.
func (t *tormentor) impair(ctx context.Context, s step, seat *seat, while func() error) error {
	life := context.WithoutCancel(ctx)
	broken := func() error { return seat.network.set(life, false) }
	mend := func() error { return seat.network.set(life, true) }
	if seat.network == nil {
		broken = func() error { return seat.proxy.set(modes[s.kind]) }
		mend = func() error { return seat.proxy.set(mode{}) }
	}
	mended := t.begin(s.kind, s.worker)
	if err := broken(); err != nil {
		return err
	}
	err := while()
	if again := insist(life, 10*time.Second, func(context.Context) error { return mend() }); again != nil {
		return again
	}
	mended()
	return err
}

// mend makes sure that nothing is broken any more, whatever came in between.
func (t *tormentor) mend(ctx context.Context) error {
	if err := t.enableTriggers(ctx); err != nil {
		return fmt.Errorf("enable triggers: %w", err)
	}
	for _, seat := range t.crew.seats {
		if err := seat.start(); err != nil {
			return err
		}
	}
	if t.studio != nil {
		return t.studio.start()
	}
	return nil
}

// daemon does something to the one that publishes videos.
func (t *tormentor) daemon(ctx context.Context, s step) error {
	switch {
	case t.studio == nil:
		return errNoVideos
	case s.kind == killFFmpeg:
		return t.killFFmpeg(ctx, s)
	case s.kind == freezeDaemon:
		t.tell(s, "")
		p := t.studio.present()
		p.freeze()
		err := pause(ctx, s.lasts)
		p.thaw()
		return err
	}
	if err := t.studio.spare(ctx, patience); err != nil {
		return err
	}
	t.tell(s, "")
	t.studio.present().kill()
	t.kills.Add(1)
	if err := pause(ctx, s.lasts); err != nil {
		return err
	}
	return t.studio.start()
}

// killFFmpeg waits until there is one, and ends it.
func (t *tormentor) killFFmpeg(ctx context.Context, s step) error {
	if err := t.studio.spare(ctx, s.lasts); err != nil {
		return err
	}
	for late := time.Now().Add(s.lasts); time.Now().Before(late); {
		if t.studio.killOne() {
			t.kills.Add(1)
			t.tell(step{kind: s.kind, worker: -1}, "")
			return nil
		}
		if err := pause(ctx, 2*ms); err != nil {
			return err
		}
	}
	return fmt.Errorf("none ran for %v", s.lasts)
}
