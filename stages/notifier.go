package stages

import (
	"context"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// notifyEvents notifies readers of events, in any process, that this one has written
// some. Commits with a notification wait for each other, so exchanges send none; one is
// sent for all that were written in 200 ms. The triggers notify of what others write.
func (p *process) notifyEvents(ctx context.Context) {
	const interval = 200 * time.Millisecond
	if p.housekeeper == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wrote:
		}
		sending, cancel := context.WithTimeout(ctx, shutdownTimeout)
		_ = p.housekeeper.NotifyEvents(sending) // the dispatcher reports an outage; readers also poll
		cancel()
		if ctxsleep.For(ctx, interval) != nil {
			return
		}
	}
}
