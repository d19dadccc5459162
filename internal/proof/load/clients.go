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

	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// clientsEnv makes this program the process of the clients. It holds the clientOptions as JSON.
const clientsEnv = "CUELIGHT_LOAD_CLIENTS"

// clientOptions say what the clients do.
type clientOptions struct {
	Address string // of the daemon
	Secret  string
	Streams int
	Pages   int
	Rate    int
}

// observation is what the clients received between connect and disconnect.
type observation struct {
	Streams         []streamCount
	Behind          int // streams that did not receive the last event in time
	Drops           int
	Resyncs         int
	FirstErrors     []string
	Errors          int
	Lags            []float64            // from an event to its arrival, in ms
	TaskStreams     int                  // streams of single tasks that ended with their task
	LateProgress    int                  // progress events after the end of a task
	PageChanges     int                  // messages to pages of the dashboard
	Responses       map[string][]float64 // durations of requests, in ms
	FailedResponses int
}

// The commands to the process of the clients.
const (
	connectCommand    = "connect"
	disconnectCommand = "disconnect" // with the id of the event that all must have received
)

// clientsMain carries out the commands on its standard input, until that ends. It answers each with
// one JSON value: null when all streams are open, or an observation.
func clientsMain(o clientOptions) error {
	out := json.NewEncoder(os.Stdout)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var c *clients
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		command, id, _ := strings.Cut(lines.Text(), " ")
		switch {
		case command == connectCommand && c == nil:
			c = connectClients(ctx, o)
			_ = out.Encode(nil) // without a reader, standard input ends, too
		case command == disconnectCommand && c != nil:
			last, _ := strconv.ParseInt(id, 10, 64) // 0 is before every event
			_ = out.Encode(c.disconnect(last))
			c = nil
		}
	}
	return nil
}

// clients are all clients between connect and disconnect.
type clients struct {
	clientOptions
	cancel    context.CancelFunc
	running   sync.WaitGroup
	followers []*follower

	mu          sync.Mutex
	observation observation
}

const (
	// groupSize: of so many streams one is dropped now and then, and another one measures lags.
	groupSize = 10
	// dropAfter is the most messages that the first one receives before it drops its connection.
	dropAfter = 200
	// reconnectWithin is the most time until it connects again.
	reconnectWithin = 2 * time.Second
)

// connectClients starts all clients, and returns when all streams of events are open.
func connectClients(ctx context.Context, o clientOptions) *clients {
	ctx, cancel := context.WithCancel(ctx)
	c := &clients{clientOptions: o, cancel: cancel, observation: observation{Responses: make(map[string][]float64)}}
	var opening sync.WaitGroup
	for i := range o.Streams {
		opening.Add(1)
		f := &follower{clientOptions: o, reconnectWithin: reconnectWithin, onOpen: opening.Done}
		switch i % groupSize {
		case 1:
			f.dropAfter = dropAfter
		case 2:
			f.onEvent = c.addLag
		}
		c.followers = append(c.followers, f)
		c.running.Go(func() {
			err := f.follow(ctx)
			if f.count.From == 0 {
				opening.Done()
			}
			c.addError(err)
		})
		if i%20 == 19 {
			_ = ctxsleep.For(ctx, 20*time.Millisecond) // so that not all connect at once
		}
	}
	opening.Wait()
	for i := range o.Pages {
		c.running.Go(func() { c.addError(c.followPage(ctx, i)) })
		c.running.Go(func() { c.addError(c.followTasks(ctx)) })
	}
	if o.Rate > 0 {
		c.running.Go(func() { c.sendRequests(ctx) })
	}
	return c
}

// disconnect waits until all streams have received an event, and ends all clients.
func (c *clients) disconnect(last int64) *observation {
	deadline := time.Now().Add(15 * time.Second)
	countBehind := func() (n int) {
		for _, f := range c.followers {
			if f.last.Load() < last {
				n++
			}
		}
		return n
	}
	for countBehind() > 0 && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	c.observation.Behind = countBehind()
	c.cancel()
	c.running.Wait()
	for _, f := range c.followers {
		c.observation.Streams = append(c.observation.Streams, f.count)
		c.observation.Drops += f.drops
		c.observation.Resyncs += f.resyncs
	}
	return &c.observation
}

// addError records an error, unless it is nil or caused by the end.
func (c *clients) addError(err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.observation.Errors++; len(c.observation.FirstErrors) < 5 {
		c.observation.FirstErrors = append(c.observation.FirstErrors, err.Error())
	}
}

// addLag records how long ago an event happened.
func (c *clients) addLag(data []byte) {
	now := time.Now()
	var event struct{ At time.Time }
	if err := json.Unmarshal(data, &event); err != nil || event.At.IsZero() {
		c.addError(fmt.Errorf("an event has no valid time: %w: %s", err, data))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observation.Lags = append(c.observation.Lags, milliseconds(now.Sub(event.At)))
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
