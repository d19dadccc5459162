package stages

import (
	"sync"

	"github.com/cuelight/cuelight/store"
)

// live are the attempts being worked on, shared by the dispatcher, which adds
// them, and the heartbeat, which cancels those that were lost.
type attempts struct {
	mu       sync.Mutex
	attempts map[store.ID]*attempt // by token
}

func (l *attempts) add(a *attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts[a.claim.Token] = a
}

func (l *attempts) remove(token store.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.attempts, token)
}

func (l *attempts) has(token store.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attempts[token] != nil
}

// get is the attempt with the token, or nil.
func (l *attempts) get(token store.ID) *attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attempts[token]
}

func (l *attempts) all() []*attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*attempt, 0, len(l.attempts))
	for _, a := range l.attempts {
		all = append(all, a)
	}
	return all
}

func (l *attempts) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.attempts)
}

func (l *attempts) cancelAll(why error) {
	for _, a := range l.all() {
		a.cancel(why)
	}
}
