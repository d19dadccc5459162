package access

import "context"

// With returns a context whose principal is p.
func With(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, identity{credential: credential{principal: p}})
}
