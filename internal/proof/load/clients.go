package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// server is how clients reach the daemon.
type server struct{ address, secret string }

// clients are all clients between connect and disconnect.
type clients struct {
	server
	cancel    context.CancelFunc
	running   sync.WaitGroup
	followers []*follower

	mu sync.Mutex // guards the observation while they run
	*observation
}

// observation is what all clients received so far.
type observation struct {
	Received    int      `json:"events_received"` // by all streams together
	Streams     int      `json:"streams"`
	Drops       int      `json:"drops"`
	Errors      int      `json:"errors"` // of requests, too
	FirstErrors []string `json:"first_errors"`

	lags      []float64 // from an event to its arrival, in ms
	responses []float64 // durations of requests, in ms
}

// Of groupSize streams one is dropped after at most dropAfter messages, and connects again within reconnectWithin, and
// another one measures lags.
const groupSize, dropAfter, reconnectWithin = 10, 200, 2 * time.Second

// connectClients starts all clients, and returns when all streams of events are open. Requests are for some of the tasks.
func connectClients(ctx context.Context, s server, o options, tasks []string, seen *observation) *clients {
	ctx, cancel := context.WithCancel(ctx)
	c := &clients{server: s, cancel: cancel, observation: seen}
	var opening sync.WaitGroup
	for i := range o.streams {
		opening.Add(1)
		f := &follower{server: c.server, reconnectWithin: reconnectWithin, onOpen: opening.Done}
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
	c.running.Go(func() { c.sendRequests(ctx, o.rate, tasks) })
	return c
}

// disconnect waits until all streams have received an event, ends all clients, and returns what the streams received.
func (c *clients) disconnect(last int64) (counts []streamCount) {
	isBehind := func(f *follower) bool { return f.last.Load() < last }
	for end := time.Now().Add(15 * time.Second); slices.ContainsFunc(c.followers, isBehind) && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	c.cancel()
	c.running.Wait()
	for _, f := range c.followers {
		counts = append(counts, f.count)
		c.Received += f.count.N
		c.Drops += f.drops
		if isBehind(f) {
			c.addError(fmt.Errorf("a stream received no event after %d; the last is %d", f.last.Load(), last))
		}
	}
	c.Streams += len(c.followers)
	return counts
}

// addError records an error, unless it is nil or caused by the end.
func (c *clients) addError(err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Errors++; len(c.FirstErrors) < 5 {
		c.FirstErrors = append(c.FirstErrors, err.Error())
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
	c.lags = append(c.lags, milliseconds(now.Sub(event.At)))
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// requestPaths are requested in turn. An asterisk stands for the id of a task.
var requestPaths = []string{
	"/api/v1/tasks?limit=50", "/api/v1/tasks/*", "/api/v1/stages", "/", "/api/v1/tasks?limit=20&status=dead",
	"/videos/*", "/api/v1/tasks/*", "/api/v1/workers", "/?state=running", "/workers", "/api/v1/events?limit=100",
	"/dead", "/api/v1/tasks/*", "/latency", "/metrics",
}

// get requests a path, and returns an error if the status is not 200.
func (s server) get(ctx context.Context, client *http.Client, path string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+path, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+s.secret)
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// sendRequests sends requests at a steady rate until ctx is done. The duration of a request counts
// from when it was due, however long the earlier ones take.
func (c *clients) sendRequests(ctx context.Context, rate int, tasks []string) {
	// As many connections as several browsers together keep.
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}, Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	var running sync.WaitGroup
	defer running.Wait()
	started := time.Now()
	for i := 0; ; i++ {
		due := started.Add(time.Duration(i) * time.Second / time.Duration(rate))
		if ctxsleep.For(ctx, time.Until(due)) != nil {
			return
		}
		running.Go(func() {
			err := c.get(ctx, client, strings.Replace(requestPaths[i%len(requestPaths)], "*", tasks[i%len(tasks)], 1))
			duration := milliseconds(time.Since(due))
			if ctx.Err() != nil {
				return
			}
			c.addError(err)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.responses = append(c.responses, duration)
		})
	}
}
