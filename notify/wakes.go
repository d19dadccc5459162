package notify

import (
	"maps"
	"slices"
	"sync"
)

// Wakes is a set of channels that had notifications. It has each channel once, however
// many notifications arrive, so a slow reader uses no more memory. Its zero value cannot
// be used; see [NewWakes].
type Wakes struct {
	mu       sync.Mutex
	channels map[string]bool
	c        chan struct{}
}

// NewWakes returns an empty set.
func NewWakes() *Wakes {
	return &Wakes{channels: make(map[string]bool), c: make(chan struct{}, 1)}
}

// Add adds channels. It never blocks.
func (w *Wakes) Add(channels ...string) {
	w.mu.Lock()
	for _, c := range channels {
		w.channels[c] = true
	}
	w.mu.Unlock()
	signal(w.c)
}

// C yields a value when the set may have channels to [Wakes.Take].
func (w *Wakes) C() <-chan struct{} { return w.c }

// Take returns the channels in the set and empties it. The set may be empty even after C
// yielded a value.
func (w *Wakes) Take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.channels) == 0 {
		return nil
	}
	channels := slices.Sorted(maps.Keys(w.channels))
	clear(w.channels)
	return channels
}

// signal puts a value into c, which has room for one, unless it has one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
