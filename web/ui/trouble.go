package ui

import (
	"context"
	"errors"
	"net/http"
	"sync"
)

// troubles are what was told of, by where it was: it is told again when it is
// something else, or when it was over meanwhile.
type troubles struct {
	mu   sync.Mutex
	told map[string]string
}

// troublesKept is how many are remembered, beyond which they are told again.
const troublesKept = 256

// news reports whether an error was not there before; nil ends what was.
func (t *troubles) news(where string, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		delete(t.told, where)
		return false
	}
	if t.told[where] == err.Error() {
		return false
	}
	if t.told == nil || len(t.told) >= troublesKept {
		t.told = make(map[string]string)
	}
	t.told[where] = err.Error()
	return true
}

// told tells of what went wrong on this side. What people do wrong, or cannot have,
// is told to them alone.
func (u *UI) told(where string, err error) {
	u.tellOf(where, where, err)
}

// toldOf is told of a view. What it is asked for is nobody else's.
func (u *UI) toldOf(k key, err error) {
	u.tellOf(k.page+"?"+k.query, k.page, err)
}

func (u *UI) tellOf(id, where string, err error) {
	if err != nil {
		if status, _ := explain(err); status < http.StatusInternalServerError || errors.Is(err, errCrowded) || errors.Is(err, context.Canceled) {
			return
		}
	}
	if u.troubles.news(id, err) && u.o.Trouble != nil {
		u.o.Trouble(where, err)
	}
}
