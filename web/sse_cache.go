package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cuelight/cuelight/store"
)

// eventCache keeps the newest events as they are sent, so that each event is encoded once for all streams. Its zero
// value is ready, and many goroutines may use it.
type eventCache [512]atomic.Pointer[cachedEvent]

type cachedEvent struct {
	id   int64
	task store.ID
	at   time.Time
	text []byte
}

// encode returns what is sent of an event. The caller must not change it.
func (c *eventCache) encode(e store.Event) ([]byte, error) {
	slot := &c[uint64(e.ID>>16+e.ID)%uint64(len(c))]
	// A database that was created again may use an id a second time, so the id alone does not identify an event.
	if had := slot.Load(); had != nil && had.id == e.ID && had.task == e.Task && had.at.Equal(e.At) {
		return had.text, nil
	}
	text, err := encodeEvent(e.ID, string(e.Type), e)
	if err == nil {
		slot.Store(&cachedEvent{e.ID, e.Task, e.At, text})
	}
	return text, err
}

// errEncode means that an event cannot be encoded.
var errEncode = errors.New("encode event")

// encode formats one event. Neither JSON nor the names of events contain line breaks.
func encodeEvent(id int64, name string, data any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(data); err != nil {
		return nil, fmt.Errorf("%w %s: %w", errEncode, name, err)
	}
	text := bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	out := make([]byte, 0, len(text)+len(name)+40)
	out = append(out, "id: "...)
	out = strconv.AppendInt(out, id, 10)
	out = append(append(out, "\nevent: "...), name...)
	out = append(append(out, "\ndata: "...), text...)
	return append(out, "\n\n"...), nil
}
