package notify

import (
	"slices"
	"sync"
)

// Wakes is a set of channels there was news on. However much news comes, the
// set holds each channel once, so nothing piles up behind a slow reader. The
// zero value is not usable; see [NewWakes].
type Wakes struct {
	mu   sync.Mutex
	news map[string]bool
	c    chan struct{}
}

// NewWakes returns an empty set.
func NewWakes() *Wakes {
	return &Wakes{news: make(map[string]bool), c: make(chan struct{}, 1)}
}

// Add notes news on the channels. It never blocks.
func (w *Wakes) Add(channels ...string) {
	w.mu.Lock()
	for _, c := range channels {
		w.news[c] = true
	}
	w.mu.Unlock()
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// C yields a value when there is news to [Wakes.Take].
func (w *Wakes) C() <-chan struct{} { return w.c }

// Take returns the channels there was news on and empties the set. It is empty
// now and then even after C yielded.
func (w *Wakes) Take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.news) == 0 {
		return nil
	}
	channels := make([]string, 0, len(w.news))
	for c := range w.news {
		channels = append(channels, c)
	}
	clear(w.news)
	slices.Sort(channels)
	return channels
}
