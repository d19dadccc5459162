package web

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cuelight/cuelight/store"
)

// frames keeps the newest events as they are sent, so that each of them is
// written once however many streams there are. It may be used by many goroutines
// at once.
type frames [512]atomic.Pointer[framed]

// framed is what is sent of an event, and what tells that from others.
type framed struct {
	id   int64
	task store.ID
	at   time.Time
	text []byte
}

// of is what is sent of an event, which nobody may change.
func (f *frames) of(e store.Event) ([]byte, error) {
	slot := &f[uint64(e.ID>>16+e.ID)%uint64(len(f))]
	// The ids of a database that was made anew begin anew.
	if had := slot.Load(); had != nil && had.id == e.ID && had.task == e.Task && had.at.Equal(e.At) {
		return had.text, nil
	}
	text, err := frame(e.ID, string(e.Type), e)
	if err == nil {
		slot.Store(&framed{e.ID, e.Task, e.At, text})
	}
	return text, err
}

// frame is an event of a stream. The names of events and JSON have no line breaks.
func frame(id int64, name string, data any) ([]byte, error) {
	text, err := json.Marshal(data)
	if err != nil {
		return nil, fmt.Errorf("write event %s: %w", name, err)
	}
	out := make([]byte, 0, len(text)+len(name)+40)
	out = append(out, "id: "...)
	out = strconv.AppendInt(out, id, 10)
	out = append(append(out, "\nevent: "...), name...)
	out = append(append(out, "\ndata: "...), text...)
	return append(out, "\n\n"...), nil
}
