package notify

import "time"

// SetPoolerRetryDelay sets the delay between attempts to connect after ErrPooled.
func (l *Listener) SetPoolerRetryDelay(d time.Duration) { l.poolerRetryDelay = d }
