package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// workerLog is the log of one incarnation of a worker.
type workerLog struct {
	worker  int
	ended   time.Time
	killed  time.Time // zero if it was not
	entries []logEntry
}

// logEntry is one line of a worker's log. Only the fields that apply are set.
type logEntry struct {
	At      int64    `json:"at"`   // microseconds since 1970
	What    string   `json:"what"` // startEntry, endEntry or eventEntry
	Task    store.ID `json:"task,omitzero"`
	Source  string   `json:"source,omitempty"`
	Stage   string   `json:"stage,omitempty"`
	Part    int      `json:"part,omitempty"`
	Attempt int      `json:"attempt,omitempty"`
	Token   store.ID `json:"token,omitzero"`
	How     string   `json:"how,omitempty"` // how an execution ended, or the kind of event
	Why     string   `json:"why,omitempty"`
	Worker  store.ID `json:"worker,omitzero"`
	Count   int      `json:"count,omitempty"`
	Expired bool     `json:"expired,omitempty"` // of a removal: retention deleted the task

	IsJoin bool       `json:"is_join,omitempty"` // of parts
	Kept   []int      `json:"kept,omitempty"`    // of a division into Count parts: those that stay
	Joined []store.ID `json:"joined,omitempty"`  // the results of the parts that a join read: the tokens of their attempts
}

const (
	startEntry = "start" // of an execution
	endEntry   = "end"   // of an execution
	eventEntry = "event"
	// removalEntry says that a worker removed files of a deleted task.
	removalEntry = "removal"
)

// The files that are removed.
const (
	removedPublished = "published"
	removedFiles     = "files"
)

// How an execution ended.
const (
	endedCompleted   = "completed"
	endedDivided     = "divided"
	endedFailed      = "failed"
	endedPermanent   = "permanent"
	endedInterrupted = "interrupted"
	endedPanic       = "panic"
)

func (e logEntry) time() time.Time { return time.UnixMicro(e.At) }

// logWriter appends to the log file of this process. The lines survive the death of the process,
// except that the last one may be incomplete.
type logWriter struct {
	mu   sync.Mutex
	file *os.File
}

func openLogFile(path string) (*logWriter, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open worker log: %w", err)
	}
	return &logWriter{file: f}, nil
}

// write returns when the line is in the file. A process that cannot write ends: without its log
// nothing can be shown.
func (l *logWriter) write(e logEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.At = time.Now().UnixMicro()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos: write worker log:", err)
		os.Exit(2)
	}
}

// removal returns a function of stages.Retention. There are no files; it records that it was called.
func (l *logWriter) removal(files string) func(context.Context, store.DeletedTask) error {
	return func(_ context.Context, task store.DeletedTask) error {
		l.write(logEntry{What: removalEntry, How: files, Task: task.ID, Expired: task.Expired})
		return nil
	}
}

// Events of the listener. The other kinds of events are the Runner's.
const (
	listenerConnected    = "listener_connected"
	listenerDisconnected = "listener_disconnected"
)

func (l *logWriter) writeListener(isConnected bool, err error) {
	kind := listenerConnected
	if !isConnected {
		kind = listenerDisconnected
	}
	l.write(logEntry{What: eventEntry, How: kind, Why: progresslog.Brief(err)})
}

// writeEvent records an event of the Runner, except those that the stages record themselves.
func (l *logWriter) writeEvent(e stages.Event) {
	if e.Kind == stages.StageStarted || e.Kind == stages.StageProgress {
		return
	}
	l.write(logEntry{
		What: eventEntry, How: string(e.Kind), Task: e.Task, Stage: e.Stage, Part: e.Part, Attempt: e.Attempt,
		Worker: e.Worker, Count: e.Count, Why: progresslog.Brief(e.Err),
	})
	switch e.Kind {
	case stages.WorkerStarted:
		fmt.Println(readyPrefix)
	case stages.DatabaseUnavailable:
		fmt.Println("lost contact:", progresslog.Brief(e.Err))
	case stages.WorkerLost:
		fmt.Println("expired another worker")
	}
}

// readLogFile reads a whole log. A process that was killed before it wrote anything has none.
func readLogFile(path string) ([]logEntry, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var entries []logEntry
	for in := json.NewDecoder(f); ; {
		var e logEntry
		switch err := in.Decode(&e); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // a line without its end is incomplete
			return entries, nil
		case err != nil:
			return nil, fmt.Errorf("read worker log %s: %w", path, err)
		}
		entries = append(entries, e)
	}
}
