package notify

import "time"

// PausePooled sets the pause between tries through a pooler that does not keep
// sessions.
func (l *Listener) PausePooled(d time.Duration) { l.pooledPause = d }
