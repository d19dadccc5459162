package notify

import (
	"maps"
	"slices"
	"sync"
)

// Wake is a channel that had notifications, and their payloads: an empty one stands for any.
type Wake struct {
	Channel  string
	Payloads []string
}

// maxPayloads is how many payloads of a channel are kept apart.
const maxPayloads = 64

// Wakes is a set of channels that had notifications. It has each channel and payload once, however
// many notifications arrive, so a slow reader uses no more memory. Its zero value cannot
// be used; see [NewWakes].
type Wakes struct {
	mu       sync.Mutex
	channels map[string]map[string]bool // payloads by channel
	c        chan struct{}
}

// NewWakes returns an empty set.
func NewWakes() *Wakes {
	return &Wakes{channels: make(map[string]map[string]bool), c: make(chan struct{}, 1)}
}

// Add adds channels, with an empty payload. It never blocks.
func (w *Wakes) Add(channels ...string) {
	for _, c := range channels {
		w.AddPayload(c, "")
	}
}

// AddPayload adds a channel with a payload. It never blocks.
func (w *Wakes) AddPayload(channel, payload string) {
	w.mu.Lock()
	payloads := w.channels[channel]
	if payloads == nil {
		payloads = make(map[string]bool)
		w.channels[channel] = payloads
	}
	if payload == "" || len(payloads) >= maxPayloads {
		clear(payloads)
		payload = ""
	}
	if !payloads[""] {
		payloads[payload] = true
	}
	w.mu.Unlock()
	signal(w.c)
}

// C yields a value when the set may have channels to [Wakes.Take].
func (w *Wakes) C() <-chan struct{} { return w.c }

// Take returns the channels in the set, sorted, and empties it. The set may be empty even after C
// yielded a value.
func (w *Wakes) Take() []Wake {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []Wake
	for _, c := range slices.Sorted(maps.Keys(w.channels)) {
		all = append(all, Wake{c, slices.Sorted(maps.Keys(w.channels[c]))})
	}
	clear(w.channels)
	return all
}

// signal puts a value into c, which has room for one, unless it has one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
