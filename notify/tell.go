package notify

import "context"

// state is what was last told about the Listener, or will be.
type state int

const (
	silent  state = iota // nothing was told yet
	hearing              // it hears
	lost                 // it does not, and tries to
	pooled               // it cannot, where it is
)

type change struct {
	state state
	err   error
}

// become notes a change to be told. Whatever comes while [Options.OnChange]
// blocks, no more than two changes wait for it.
func (l *Listener) become(s state, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Without a server there is no telling whether the pooler has changed.
	if s == l.state || s == lost && l.state == pooled {
		return
	}
	l.state = s
	if len(l.untold) == 2 {
		l.untold = l.untold[:1]
	}
	if len(l.untold) == 0 || l.untold[0].state != s {
		l.untold = append(l.untold, change{s, err})
	}
	handleSignal(l.turn)
}

// tell calls OnChange, off the goroutine that reads from the connection: a
// reader that waits for somebody would hold up the server's clean-up.
func (l *Listener) tell(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.turn:
		}
		for ctx.Err() == nil {
			c, ok := l.nextChange()
			if !ok {
				break
			}
			l.opts.OnChange(c.state == hearing, c.err)
		}
	}
}

func (l *Listener) nextChange() (c change, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.untold) == 0 {
		return c, false
	}
	c = l.untold[0]
	l.untold = l.untold[1:]
	return c, true
}
