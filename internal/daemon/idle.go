package daemon

import (
	"context"
	"time"
)

// isBusy reports whether there is work besides that of the Runner: claims of remote workers, automatic captions in the making,
// open uploads, and deliveries of webhooks that are due. It returns true if that is not known.
func (s *services) isBusy(ctx context.Context) bool {
	// Meanwhile nobody feeds the watchdog.
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if s.d.captions.busy.Load() || s.coordinator != nil && s.coordinator.HasClaims() {
		return true
	}
	if s.uploads != nil {
		if isOpen, err := s.uploads.HasOpen(ctx); isOpen || err != nil {
			return true
		}
	}
	isDue, err := s.webhooks.HasDue(ctx)
	return isDue || err != nil
}
