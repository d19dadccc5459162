package stages

import (
	"sync"

	"github.com/cuelight/cuelight/store"
)

// live are the attempts being worked on, shared by the dispatcher, which adds
// them, and the heartbeat, which cancels those that were lost.
type live struct {
	mu       sync.Mutex
	attempts map[store.ID]*attempt // by token
}

func (l *live) add(a *attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts[a.claim.Token] = a
}

func (l *live) remove(token store.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.attempts, token)
}

func (l *live) has(token store.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attempts[token] != nil
}

// get is the attempt with the token, or nil.
func (l *live) get(token store.ID) *attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attempts[token]
}

func (l *live) all() []*attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*attempt, 0, len(l.attempts))
	for _, a := range l.attempts {
		all = append(all, a)
	}
	return all
}

func (l *live) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.attempts)
}

func (l *live) cancelAll(why error) {
	for _, a := range l.all() {
		a.cancel(why)
	}
}
