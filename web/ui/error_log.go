package ui

import (
	"context"
	"errors"
	"net/http"
	"sync"
)

// troubles are what was told of, by where it was: it is told again when it is
// something else, or when it was over meanwhile.
type errorLog struct {
	mu       sync.Mutex
	reported map[string]string
}

// troublesKept is how many are remembered, beyond which they are told again.
const maxReported = 256

// news reports whether an error was not there before; nil ends what was.
func (t *errorLog) isNew(where string, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		delete(t.reported, where)
		return false
	}
	if t.reported[where] == err.Error() {
		return false
	}
	if t.reported == nil || len(t.reported) >= maxReported {
		t.reported = make(map[string]string)
	}
	t.reported[where] = err.Error()
	return true
}

// told tells of what went wrong on this side. What people do wrong, or cannot have,
// is told to them alone.
func (u *UI) reportError(where string, err error) {
	u.report(where, where, err)
}

// toldOf is told of a view. What it is asked for is nobody else's.
func (u *UI) reportViewError(k viewKey, err error) {
	u.report(k.page+"?"+k.query, k.page, err)
}

func (u *UI) report(id, where string, err error) {
	if err != nil {
		if status, _ := errorResponse(err); status < http.StatusInternalServerError || errors.Is(err, errTooManyPages) || errors.Is(err, context.Canceled) {
			return
		}
	}
	if u.errors.isNew(id, err) && u.o.OnError != nil {
		u.o.OnError(where, err)
	}
}
