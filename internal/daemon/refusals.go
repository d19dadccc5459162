package daemon

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/store"
)

// refusals disable the keys of remote workers whose results were refused too often.
type refusals struct {
	actions ops.Actions
	log     *zap.Logger
	wake    chan struct{} // has room for one: reasons is not empty

	mu      sync.Mutex        // guards reasons
	reasons map[string]string // the last refusal, by principal
}

func newRefusals(st *store.Store, log *zap.Logger) *refusals {
	return &refusals{
		actions: ops.Actions{Store: st, Authorize: func(context.Context, access.Scope) (string, error) { return "cuelight", nil }},
		log:     log, wake: make(chan struct{}, 1), reasons: make(map[string]string),
	}
}

// observe is for remote.Options.OnRefused.
func (r *refusals) observe(worker store.ID, principal, reason string) {
	r.log.Warn("result refused", zap.Stringer("worker", worker), zap.String("key", principal), zap.String("reason", reason))
	r.mu.Lock()
	r.reasons[principal] = reason
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// refusalRetry is the pause after the database has failed.
const refusalRetry = 2 * time.Second

// run disables keys until ctx is done. It tries again while the database fails.
func (r *refusals) run(ctx context.Context) {
	report := failureLogger(r.log, "keys of refused workers cannot be disabled", "keys of refused workers are disabled again")
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		for principal, reason := range r.take() {
			err := r.check(ctx, principal, reason)
			for err != nil && ctxsleep.For(ctx, refusalRetry) == nil {
				report(err)
				err = r.check(ctx, principal, reason)
			}
			if ctx.Err() != nil {
				return
			}
			report(nil)
		}
	}
}

func (r *refusals) take() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.reasons
	r.reasons = make(map[string]string)
	return taken
}

// refusalTimeout is that of one transaction.
const refusalTimeout = 25 * time.Second

func (r *refusals) check(ctx context.Context, principal, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, refusalTimeout)
	defer cancel()
	key, disabled, err := r.actions.DisableRefusedKey(ctx, principal, reason)
	if disabled {
		r.log.Error("key disabled: results of its workers were refused", zap.String("key", key.PrincipalName()),
			zap.String("reason", reason), zap.String("hint", "cuelight keys enable "+key.Prefix+" accepts it again"))
	}
	return err
}
