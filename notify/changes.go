package notify

import "context"

// state is the connection state that OnChange knows, or will know from pendingChanges.
type state int

const (
	initial      state = iota // OnChange was not called yet
	listening                 // connected, and listening to all channels
	disconnected              // trying to connect
	behindPooler              // cannot listen, because of the pooler
)

type change struct {
	state state
	err   error
}

// setState adds a change for [Options.OnChange]. While that blocks, at most two changes
// wait: a change that reverts the last one replaces it.
func (l *Listener) setState(s state, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// While the server is away, it is unknown whether the pooler's mode has changed.
	if s == l.state || s == disconnected && l.state == behindPooler {
		return
	}
	l.state = s
	if len(l.pendingChanges) == 2 {
		l.pendingChanges = l.pendingChanges[:1]
	}
	if len(l.pendingChanges) == 0 || l.pendingChanges[0].state != s {
		l.pendingChanges = append(l.pendingChanges, change{s, err})
	}
	signal(l.changed)
}

// reportChanges calls OnChange. It is not called from the goroutine that reads from the
// connection: if that blocked, the server could not remove old notifications.
func (l *Listener) reportChanges(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.changed:
		}
		for ctx.Err() == nil {
			c, ok := l.nextChange()
			if !ok {
				break
			}
			l.options.OnChange(c.state == listening, c.err)
		}
	}
}

func (l *Listener) nextChange() (c change, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pendingChanges) == 0 {
		return c, false
	}
	c = l.pendingChanges[0]
	l.pendingChanges = l.pendingChanges[1:]
	return c, true
}
