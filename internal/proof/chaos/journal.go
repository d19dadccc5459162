package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/cuelight/cuelight/store"
)

// entry is one line of a journal: what a worker process did, by its own word
// and that of nobody else. Of its fields only those that apply are set.
type entry struct {
	At      int64    `json:"at"`   // microseconds since 1970
	What    string   `json:"what"` // start, end or event
	Task    store.ID `json:"task,omitzero"`
	Source  string   `json:"source,omitempty"`
	Stage   string   `json:"stage,omitempty"`
	Attempt int      `json:"attempt,omitempty"`
	Token   store.ID `json:"token,omitzero"`
	PID     int      `json:"pid,omitempty"`
	How     string   `json:"how,omitempty"` // how work ended, or what kind of event it is
	Why     string   `json:"why,omitempty"`
	Worker  store.ID `json:"worker,omitzero"`
	Count   int      `json:"count,omitempty"`
}

// What an entry is about.
const (
	startOfWork = "start"
	endOfWork   = "end"
	eventTold   = "event"
)

// How work ended.
const (
	endedWell      = "completed"
	endedBadly     = "failed"
	endedForGood   = "permanent"
	endedEarly     = "interrupted"
	endedWithPanic = "panic"
)

// at is when, as a time.
func (e entry) at() time.Time { return time.UnixMicro(e.At) }

// journal is a file that one process appends to. What was written survives its
// death, but for the last line, which may be torn.
type journal struct {
	mu   sync.Mutex
	file *os.File
}

func openJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	return &journal{file: f}, nil
}

// write returns when the line is in the file. Without the journal nothing can be
// shown, so a process that cannot write it ends.
func (j *journal) write(e entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.At, e.PID = time.Now().UnixMicro(), os.Getpid()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = j.file.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos: write journal:", err)
		os.Exit(2)
	}
}

// readJournal reads a whole journal. That of a process which was killed before
// it wrote anything is empty.
func readJournal(path string) ([]entry, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []entry
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all, nil // what stands without a line's end was torn
		}
		if err != nil {
			return nil, fmt.Errorf("read journal: %w", err)
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read journal %s: %w", path, err)
		}
		all = append(all, e)
	}
}
