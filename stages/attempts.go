package stages

import (
	"sync"

	"github.com/cuelight/cuelight/store"
)

// attempts are the claims that this process holds. The dispatcher adds and removes
// them; the heartbeat and the shutdown cancel them.
type attempts struct {
	work    sync.WaitGroup // the goroutines that run Work
	mu      sync.Mutex
	byToken map[store.ID]*attempt
}

func (l *attempts) add(a *attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byToken[a.claim.Token] = a
}

func (l *attempts) remove(token store.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byToken, token)
}

// get returns the attempt with the token, or nil.
func (l *attempts) get(token store.ID) *attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byToken[token]
}

func (l *attempts) all() []*attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*attempt, 0, len(l.byToken))
	for _, a := range l.byToken {
		all = append(all, a)
	}
	return all
}

func (l *attempts) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.byToken)
}

func (l *attempts) cancelAll(why error) {
	for _, a := range l.all() {
		a.cancel(why)
	}
}
