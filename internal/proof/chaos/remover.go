package main

import (
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/store"
)

// remover runs the command tables of an earlier revision until the end, which removes deleted tasks as the workers of that
// revision would: its chaos may have no retention, and its workers are replaced before many tasks are old enough.
type remover struct {
	slot
	entriesMu sync.Mutex
	entries   []logEntry
}

func newRemover(log *progresslog.Log, program string, args ...string) *remover {
	r := new(remover)
	r.log, r.name = log, "the remover"
	r.command = func(int) (*exec.Cmd, error) {
		cmd := exec.Command(program, args...)
		cmd.Stdout = childproc.Lines(r.read)
		return cmd, nil
	}
	return r
}

// read reads a line that the process prints.
func (r *remover) read(line []byte) {
	files, text, _ := strings.Cut(string(line), " ")
	id, err := store.ParseID(text)
	if err != nil {
		r.log.Logf("%s %s", r.name, line)
		return
	}
	r.entriesMu.Lock()
	defer r.entriesMu.Unlock()
	r.entries = append(r.entries, logEntry{At: time.Now().UnixMicro(), What: removalEntry, How: files, Task: id})
}

// workerLog returns the log of the process after its end, as one of the first worker.
func (r *remover) workerLog() workerLog {
	r.entriesMu.Lock()
	defer r.entriesMu.Unlock()
	return workerLog{ended: r.current().ended, isOld: true, entries: r.entries}
}
