package ui

import (
	"context"
	"errors"
	"sync"
)

// errorLog remembers the last reported error of each view, so that a lasting error is
// reported once.
type errorLog struct {
	mu       sync.Mutex
	reported map[string]string // error text by view
}

// maxReported limits errorLog. Beyond it, lasting errors are reported again.
const maxReported = 256

// isNew records the state of a view and reports whether its error differs from the
// recorded one. A nil error clears the record.
func (l *errorLog) isNew(view string, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		delete(l.reported, view)
		return false
	}
	if l.reported[view] == err.Error() {
		return false
	}
	if l.reported == nil || len(l.reported) >= maxReported {
		l.reported = make(map[string]string)
	}
	l.reported[view] = err.Error()
	return true
}

// reportViewError passes the result of reading a view to Options.OnError. It names the
// page only: the query can hold private text.
func (u *UI) reportViewError(k viewKey, err error) { u.reportError(k.page+"?"+k.query, k.page, err) }

// reportError passes a server-side error of a view to Options.OnError, under the name
// where. Errors that the user caused are only shown to the user.
func (u *UI) reportError(view, where string, err error) {
	if err != nil {
		status, _ := errorResponse(err)
		if status < 500 || errors.Is(err, errTooManyPages) || errors.Is(err, context.Canceled) {
			return
		}
	}
	if u.errors.isNew(view, err) && u.o.OnError != nil {
		u.o.OnError(where, err)
	}
}
