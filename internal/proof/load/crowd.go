package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// crowdEnv makes this program the crowd of the order it holds.
const crowdEnv = "CUELIGHT_LOAD_CROWD"

// order says what the crowd is to do.
type order struct {
	Address string // of the daemon
	Secret  string
	Streams int
	Pages   int
	Rate    int
}

// told is what the crowd says, a line of JSON each time: that all of it looks on,
// and what it saw.
type told struct {
	Up   bool      `json:",omitempty"`
	Seen *sighting `json:",omitempty"`
	Lost string    `json:",omitempty"` // why it cannot go on
}

// sighting is what the crowd saw between a come and a go.
type sighting struct {
	Streams []account
	Behind  int // streams that were not told of the last event in time
	Drops   int
	Resyncs int
	Faults  []string             // what should not have happened, the first of them
	Faulty  int                  // how often it did
	Lags    []float64            // from when events happened to when they came, in ms
	Tasks   int                  // streams of single tasks that came to their ends
	Late    int                  // progress that was told to these after the end
	Changes int                  // messages to pages of the dashboard
	Answers map[string][]float64 // how long requests took, in ms
	Failed  int                  // requests
}

const (
	come = "come"
	goes = "go" // with the id of the event that all are to have seen
)

// crowdMain does what it is told on its standard input, until that ends.
func crowdMain(text string) int {
	var o order
	out := json.NewEncoder(os.Stdout)
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		_ = out.Encode(told{Lost: err.Error()})
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var c *crowd
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		word, id, _ := strings.Cut(lines.Text(), " ")
		switch {
		case word == come && c == nil:
			c = gather(ctx, o)
			_ = out.Encode(told{Up: true}) // who does not read it has gone
		case word == goes && c != nil:
			last, _ := strconv.ParseInt(id, 10, 64) // 0 is for no event
			_ = out.Encode(told{Seen: c.disperse(last)})
			c = nil
		}
	}
	return 0
}

// crowd is all that look on.
type crowd struct {
	order
	cancel    context.CancelFunc
	all       sync.WaitGroup
	followers []*follower

	mu   sync.Mutex
	seen sighting
}

// One of so many streams is dropped now and then, and of as many it is noted how
// late they are.
const oneOf = 10

// How long those keep a connection, and how long they stay away.
const (
	patience = 200 // messages
	away     = 2 * time.Second
)

// gather opens everything, and returns when all streams of events are open.
func gather(ctx context.Context, o order) *crowd {
	ctx, cancel := context.WithCancel(ctx)
	c := &crowd{order: o, cancel: cancel, seen: sighting{Answers: make(map[string][]float64)}}
	var ready sync.WaitGroup
	for i := range o.Streams {
		ready.Add(1)
		f := &follower{order: o, away: away, ready: ready.Done}
		switch i % oneOf {
		case 1:
			f.patience = patience
		case 2:
			f.lags = c.lag
		}
		c.followers = append(c.followers, f)
		c.all.Go(func() {
			err := f.follow(ctx)
			if f.account.From == 0 {
				ready.Done()
			}
			c.fault(err)
		})
		if i%20 == 19 {
			_ = pause(ctx, 20*time.Millisecond) // they do not come all at once
		}
	}
	ready.Wait()
	for i := range o.Pages {
		c.all.Go(func() { c.fault(c.lookAtPage(ctx, i)) })
		c.all.Go(func() { c.fault(c.lookAtTasks(ctx)) })
	}
	if o.Rate > 0 {
		c.all.Go(func() { c.ask(ctx) })
	}
	return c
}

// disperse waits until all streams were told of an event, and closes everything.
func (c *crowd) disperse(last int64) *sighting {
	until := time.Now().Add(15 * time.Second)
	behind := func() (n int) {
		for _, f := range c.followers {
			if f.last.Load() < last {
				n++
			}
		}
		return n
	}
	for behind() > 0 && time.Now().Before(until) {
		time.Sleep(5 * time.Millisecond) // between two looks
	}
	c.seen.Behind = behind()
	c.cancel()
	c.all.Wait()
	for _, f := range c.followers {
		c.seen.Streams = append(c.seen.Streams, f.account)
		c.seen.Drops += f.drops
		c.seen.Resyncs += f.resyncs
	}
	return &c.seen
}

// fault notes an error that is one.
func (c *crowd) fault(err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen.Faulty++; len(c.seen.Faults) < 5 {
		c.seen.Faults = append(c.seen.Faults, err.Error())
	}
}

// lag notes how long ago an event happened, of some of them.
func (c *crowd) lag(data string) {
	now := time.Now()
	_, rest, _ := strings.Cut(data, `"at":"`)
	text, _, _ := strings.Cut(rest, `"`)
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		c.fault(fmt.Errorf("an event does not say when it happened: %w", err))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen.Lags = append(c.seen.Lags, milliseconds(now.Sub(at)))
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
