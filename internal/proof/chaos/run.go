package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/pgserver"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/store"
)

const (
	// healthy is for how long nothing is broken at the beginning: until everybody
	// has swept twice, which would show that somebody was not woken.
	healthy = 20 * time.Second
	// settleWithin is how long the workers may take for what is left, once
	// nothing is broken any more: lease, sweeps, and the pauses between attempts.
	settleWithin = 2 * time.Minute
	// acknowledgeWithin is how long submissions may be repeated after that.
	acknowledgeWithin = 30 * time.Second
)

// options are what one says on the command line.
type options struct {
	seed     uint64
	duration time.Duration
	keep     string // a directory; empty for none
	only     []kind // kinds to be done; nil for all
	videos   bool
}

func (o *options) choose(kinds string) error {
	for name := range strings.SplitSeq(kinds, ",") {
		o.only = append(o.only, kind(name))
	}
	return nil
}

// plan is the seed's, or what is to be done of it.
func (o *options) plan() plan {
	p := newPlan(o.seed, o.duration)
	if o.only == nil {
		return p
	}
	return slices.DeleteFunc(p, func(s step) bool { return !slices.Contains(o.only, s.kind) })
}

// theatre is all that runs.
type theatre struct {
	*tormentor
	o     options
	dir   string
	load  *load
	ended []func() error // to be done at the end, the last one first
}

// run carries out the plan of the seed, and judges. An error means that it could
// not, and so shows nothing.
func run(ctx context.Context, o options, out io.Writer) (sum summary, err error) {
	t := &theatre{o: o, tormentor: &tormentor{Log: progresslog.New(out)}}
	t.Logf("seed %d, duration %v", o.seed, o.duration)
	began := time.Now()
	defer func() {
		for i := len(t.ended) - 1; i >= 0; i-- {
			err = errors.Join(err, t.ended[i]())
		}
	}()
	if err := t.build(ctx); err != nil {
		return sum, err
	}
	calm, err := t.play(ctx)
	if err != nil {
		return sum, err
	}
	v, err := t.judge(ctx, calm)
	if err != nil {
		return sum, err
	}
	sum = v.summary
	sum.Seed, sum.Seconds = o.seed, float64(time.Since(began).Milliseconds()/100)/10
	sum.Submitted, sum.Kills, sum.Restarts = t.load.submitted, int(t.kills.Load()), int(t.restarts.Load())
	t.table(&v, sum)
	return sum, nil
}

func (t *theatre) atEnd(do func()) {
	t.ended = append(t.ended, func() error { do(); return nil })
}

// build makes everything that is not for videos.
func (t *theatre) build(ctx context.Context) (err error) {
	if t.dir = t.o.keep; t.dir == "" {
		if t.dir, err = os.MkdirTemp("", "cuelight-chaos-"); err != nil {
			return err
		}
		t.ended = append(t.ended, func() error { return os.RemoveAll(t.dir) })
	} else if err = os.Mkdir(t.dir, 0o755); err != nil {
		return err
	}
	at := pgserver.Options{Durable: true, Listen: []string{"127.0.0.1"}}
	if t.network, err = newNetwork(ctx); err == nil {
		t.atEnd(t.network.close)
		at.Listen, at.Trust = append(at.Listen, t.network.host), []string{t.network.mask}
	} else if t.network = nil; ctx.Err() == nil {
		t.Logf("no network namespace, a proxy instead: %v", err)
	}
	if t.server, err = pgserver.Start(ctx, at); err != nil {
		return err
	}
	t.ended = append(t.ended, t.server.Close)
	if err := t.server.CreateDatabase(ctx, database); err != nil {
		return err
	}
	if err := t.session(ctx, func(conn *pgx.Conn) error {
		_, err := store.New(conn, graph()).Migrate(ctx)
		return err
	}); err != nil {
		return err
	}
	if t.load, err = newLoad(ctx, t.server.URL(database)+"&application_name="+ourSessions+"submitter", t.o.seed); err != nil {
		return err
	}
	t.atEnd(t.load.pool.Close)
	if t.crew, err = newCrew(t.Log, t.dir, t.server, t.network); err != nil {
		return err
	}
	t.atEnd(t.crew.close)
	return t.crew.begin(ctx)
}

// play lets everybody work, in health, then in torment, and then until all is
// done. It returns when the torments began.
func (t *theatre) play(ctx context.Context) (calm time.Time, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	until, enough := context.WithCancel(ctx)
	defer enough()
	began := time.Now()
	all.Go(func() { t.load.run(ctx, until) })
	t.Logf("%d workers are at work, about %d tasks a second are submitted", workers, rate)
	if t.o.videos {
		if err := t.videos(ctx, until, &all); err != nil {
			return calm, err
		}
	}
	if err := pause(ctx, time.Until(began.Add(healthy))); err != nil {
		return calm, err
	}
	calm = time.Now()
	t.Restart()
	all.Go(func() { t.load.long(ctx, calm.Add(t.o.duration-longWork)) })
	t.Logf("the torments begin")
	if err := t.run(ctx, t.o.plan()); err != nil {
		return calm, err
	}
	if err := pause(ctx, time.Until(calm.Add(t.o.duration))); err != nil {
		return calm, err
	}
	t.Logf("the torments are over, and everything is mended")
	enough()
	late := time.AfterFunc(acknowledgeWithin, cancel)
	all.Wait()
	if !late.Stop() {
		t.Logf("not everything was acknowledged within %v", acknowledgeWithin)
	}
	return calm, nil
}

// videos starts what publishes videos, where that is possible.
func (t *theatre) videos(ctx, until context.Context, all *sync.WaitGroup) (err error) {
	dir := filepath.Join(t.dir, "videos")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	t.studio, err = newStudio(ctx, t.Log, dir, t.server)
	if errors.Is(err, errNoVideos) {
		t.Logf("%v", err)
		return nil
	}
	if err != nil {
		return err
	}
	t.atEnd(t.studio.close)
	t.Logf("a daemon is there for videos")
	all.Go(func() { t.studio.run(ctx, until) })
	return nil
}

// settle waits until every task has ended, or for too long.
func (t *theatre) settle(ctx context.Context) error {
	for began := time.Now(); ; {
		var open int
		err := t.session(ctx, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, openSQL).Scan(&open)
		})
		if err != nil {
			return fmt.Errorf("count open tasks: %w", err)
		}
		switch {
		case open == 0:
			t.Logf("everything has ended, %.1f s after that", time.Since(began).Seconds())
			return nil
		case time.Since(began) > settleWithin:
			t.Logf("%d tasks have not ended after %v", open, settleWithin)
			return nil
		}
		if err := pause(ctx, 100*ms); err != nil {
			return err
		}
	}
}
