package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// requestPaths are requested in turn. An asterisk stands for the id of a task.
var requestPaths = []string{
	"/api/v1/tasks?limit=50",
	"/api/v1/tasks/*",
	"/api/v1/stages",
	"/",
	"/api/v1/tasks?limit=20&status=dead",
	"/videos/*",
	"/api/v1/tasks/*",
	"/api/v1/workers",
	"/?state=running",
	"/workers",
	"/api/v1/events?limit=100",
	"/dead",
	"/api/v1/tasks/*",
	"/latency",
	"/metrics",
}

// get requests a path and returns the body.
func (o clientOptions) get(ctx context.Context, client *http.Client, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.Address+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+o.Secret)
	return readResponse(client.Do(r))
}

// newestTasks returns the ids of the newest tasks with a status, or of all if that is "".
func (o clientOptions) newestTasks(ctx context.Context, client *http.Client, status string) ([]string, error) {
	path := "/api/v1/tasks?limit=50"
	if status != "" {
		path += "&status=" + status
	}
	text, err := o.get(ctx, client, path)
	if err != nil {
		return nil, err
	}
	var list struct {
		Tasks []struct {
			ID string `json:"task_id"`
		}
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	var ids []string
	for _, t := range list.Tasks {
		ids = append(ids, t.ID)
	}
	return ids, nil
}

// newHTTPClient returns a client that keeps as many connections as several browsers together.
func newHTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}, Timeout: 30 * time.Second}
}

// sendRequests sends requests at a steady rate until ctx is done. The duration of a request counts
// from when it was due, however long the earlier ones take.
func (c *clients) sendRequests(ctx context.Context) {
	client := newHTTPClient()
	defer client.CloseIdleConnections()
	ids, err := c.newestTasks(ctx, client, "")
	if err == nil && len(ids) == 0 {
		err = errors.New("there are no tasks to request")
	}
	if err != nil {
		c.addError(err)
		return
	}
	var running sync.WaitGroup
	defer running.Wait()
	started := time.Now()
	for i := 0; ; i++ {
		due := started.Add(time.Duration(i) * time.Second / time.Duration(c.Rate))
		if ctxsleep.For(ctx, time.Until(due)) != nil {
			return
		}
		running.Go(func() {
			path := requestPaths[i%len(requestPaths)]
			_, err := c.get(ctx, client, strings.Replace(path, "*", ids[i%len(ids)], 1))
			duration := milliseconds(time.Since(due))
			if ctx.Err() != nil {
				return
			}
			c.addError(err)
			c.mu.Lock()
			defer c.mu.Unlock()
			if err != nil {
				c.observation.FailedResponses++
			}
			c.observation.Responses[path] = append(c.observation.Responses[path], duration)
		})
	}
}

// followPage keeps a page of the dashboard open.
func (c *clients) followPage(ctx context.Context, i int) error {
	page := []string{"board", "board", "board", "workers", "dead", "latency"}[i%6]
	query := url.Values{"page": {page}, "for": {""}, "at": {""}}
	s, err := c.openStream(ctx, "/live?"+query.Encode(), 0)
	if err != nil {
		return fmt.Errorf("page %s: %w", page, err)
	}
	defer s.Close()
	err = readEvents(s, func(e serverEvent) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if e.event == "" {
			c.observation.PageChanges++
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the stream of page %s ended: %w", page, errors.Join(err, io.EOF))
}

// followTasks follows one task in progress after the other, each to its end.
func (c *clients) followTasks(ctx context.Context) error {
	client := newHTTPClient()
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		ids, err := c.newestTasks(ctx, client, "inprogress")
		if err == nil && len(ids) > 0 {
			err = c.followTask(ctx, ids[len(ids)-1])
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		_ = ctxsleep.For(ctx, 500*time.Millisecond) // the loop sees that ctx is done
	}
	return nil
}

// followTask reads the stream of a task, which ends with the task.
func (c *clients) followTask(ctx context.Context, id string) error {
	s, err := c.openStream(ctx, "/api/v1/tasks/"+id+"/events", 0)
	if err != nil {
		return fmt.Errorf("task %s: %w", id, err)
	}
	defer s.Close()
	var last int64
	isFinished, late := false, 0
	err = readEvents(s, func(e serverEvent) error {
		if e.id < last {
			return fmt.Errorf("event %d came after %d", e.id, last)
		}
		last = e.id
		switch e.event {
		case "completed", "dead":
			isFinished = true
		case "progress":
			if isFinished {
				late++
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("task %s: %w", id, err)
	case !isFinished:
		return fmt.Errorf("the stream of task %s ended before the task", id)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observation.TaskStreams++
	c.observation.LateProgress += late
	return nil
}
