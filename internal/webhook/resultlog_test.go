package webhook

import (
	"fmt"
	"strings"
	"sync"
)

// resultLog records the results of deliveries.
type resultLog struct {
	mu  sync.Mutex
	all []string
}

func (o *resultLog) add(s DeliveryResult) {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := fmt.Sprintf("%s %s", s.Type, s.Outcome)
	if s.Status != 0 {
		text += fmt.Sprintf(" %d", s.Status)
	}
	o.all = append(o.all, strings.TrimSpace(text))
}

func (o *resultLog) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.all, ", ")
}
