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
)

// looks are what is asked for, in turns. An asterisk is the id of a task.
var looks = []string{
	"/api/v1/tasks?limit=50",
	"/api/v1/tasks/*",
	"/api/v1/stages",
	"/",
	"/api/v1/tasks?limit=20&status=dead",
	"/videos/*",
	"/api/v1/tasks/*",
	"/api/v1/workers",
	"/?only=running",
	"/workers",
	"/api/v1/events?limit=100",
	"/dead",
	"/api/v1/tasks/*",
	"/latency",
	"/metrics",
}

// get asks for something, and reads all of the answer.
func (o order) get(ctx context.Context, client *http.Client, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.Address+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+o.Secret)
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %w", path, errAnswer(resp.StatusCode))
	}
	return body, err
}

// newest are the ids of the newest tasks.
func (o order) newest(ctx context.Context, client *http.Client, status string) ([]string, error) {
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

// client keeps as many connections as a browser's users have together.
func client() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}, Timeout: 30 * time.Second}
}

// ask makes requests at a steady pace until ctx is done. How long one took counts
// from when it was due, whatever became of those before it.
func (c *crowd) ask(ctx context.Context) {
	cl := client()
	defer cl.CloseIdleConnections()
	ids, err := c.newest(ctx, cl, "")
	if err == nil && len(ids) == 0 {
		err = errors.New("there are no tasks to ask for")
	}
	if err != nil {
		c.fault(err)
		return
	}
	var all sync.WaitGroup
	defer all.Wait()
	began := time.Now()
	for i := 0; ; i++ {
		due := began.Add(time.Duration(i) * time.Second / time.Duration(c.Rate))
		if pause(ctx, time.Until(due)) != nil {
			return
		}
		all.Go(func() {
			look := looks[i%len(looks)]
			_, err := c.get(ctx, cl, strings.Replace(look, "*", ids[i%len(ids)], 1))
			took := milliseconds(time.Since(due))
			if ctx.Err() != nil {
				return
			}
			c.fault(err)
			c.mu.Lock()
			defer c.mu.Unlock()
			if err != nil {
				c.seen.Failed++
			}
			c.seen.Answers[look] = append(c.seen.Answers[look], took)
		})
	}
}

// lookAtPage follows a page of the dashboard.
func (c *crowd) lookAtPage(ctx context.Context, i int) error {
	page := []string{"board", "board", "board", "workers", "dead", "latency"}[i%6]
	address := url.Values{"page": {page}, "for": {""}, "at": {""}}
	s, err := c.open(ctx, "/live?"+address.Encode(), 0)
	if err != nil {
		return fmt.Errorf("page %s: %w", page, err)
	}
	defer s.Close()
	err = messages(s, func(m message) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if m.event == "" {
			c.seen.Changes++
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("page %s ended: %w", page, errors.Join(err, io.EOF))
}

// lookAtTasks follows the newest task that is not over to its end, and then the
// next.
func (c *crowd) lookAtTasks(ctx context.Context) error {
	cl := client()
	defer cl.CloseIdleConnections()
	for ctx.Err() == nil {
		ids, err := c.newest(ctx, cl, "inprogress")
		if err != nil {
			return ignore(ctx, err)
		}
		if len(ids) > 0 {
			if err := c.lookAtTask(ctx, ids[len(ids)-1]); err != nil {
				return ignore(ctx, err)
			}
		}
		_ = pause(ctx, 500*time.Millisecond) // ctx ends the loop
	}
	return nil
}

// lookAtTask follows one task to its end.
func (c *crowd) lookAtTask(ctx context.Context, id string) error {
	s, err := c.open(ctx, "/api/v1/tasks/"+id+"/events", 0)
	if err != nil {
		return fmt.Errorf("task %s: %w", id, err)
	}
	defer s.Close()
	var last int64
	over, late := false, 0
	err = messages(s, func(m message) error {
		if m.id < last {
			return fmt.Errorf("event %d came after %d", m.id, last)
		}
		last = m.id
		switch m.event {
		case "completed", "dead":
			over = true
		case "progress":
			if over {
				late++
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("task %s: %w", id, err)
	case !over:
		return fmt.Errorf("the stream of task %s ended before the task", id)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen.Tasks++
	c.seen.Late += late
	return nil
}

// ignore is an error, unless it is that of the end.
func ignore(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
