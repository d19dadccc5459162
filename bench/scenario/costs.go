package scenario

import (
	"context"
	"maps"
	"slices"

	"github.com/cuelight/cuelight/bench/result"
)

// Costs measures the single costs of which the simulation puts a farm together: "cost", in ms.
func Costs() Scenario {
	return Scenario{Names: []string{"cost"}, Measure: func(ctx context.Context, t *Trial) error {
		if t.System.Costs == nil {
			return errNotSupported
		}
		costs, err := t.System.Costs(ctx, t.URL, IdlePause)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(costs)) {
			t.Record("cost", name, "ms", result.FromValue(result.Milliseconds(costs[name])))
		}
		return nil
	}}
}
