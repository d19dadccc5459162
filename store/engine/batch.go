package engine

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// exchange is one [Engine.Exchange] in progress. Slices are by stage, agedSlots by queue.
type exchange struct {
	*Engine
	request        ExchangeRequest
	mayBecomeReady []int  // how many of the reported tasks may be ready afterwards
	retried        []bool // a reported task is to be retried at once
	agedSlots      []int  // slots reserved for aged tasks
	turns          []turn // when the exchange began
	continued      []int  // reported tasks that continued
	batch          pgx.Batch
	origin         string            // as last set in the transaction
	applied        map[store.ID]bool // tokens of the reports that changed a row
	result         ExchangeResult
}

func (e *Engine) newExchange(in ExchangeRequest) *exchange {
	n, queues := len(e.stages), e.graph.Queues()
	in.FreeSlots, in.ClaimFrom, in.PromoteDue = padded(in.FreeSlots, queues), padded(in.ClaimFrom, queues), padded(in.PromoteDue, queues)
	return &exchange{
		Engine: e, request: in, turns: e.fairness.turns(),
		mayBecomeReady: make([]int, n), retried: make([]bool, n), agedSlots: make([]int, queues), continued: make([]int, n),
		result: ExchangeResult{
			Requested: make([]int, queues), Granted: make([]int, queues), LastPosition: make([]Position, queues),
			MoreReady: make([]bool, queues), NewlyReady: make([]bool, queues), NextDue: nextDueUnset(queues),
		},
	}
}

// padded returns a list with zeros at its end where it is shorter than n.
func padded[T any](list []T, n int) []T { return append(list, make([]T, max(n-len(list), 0))...) }

// queueOrigin sets the origin of the following changes, in an exchange.
func (x *exchange) queueOrigin(origin string) {
	if x.origin != origin && x.origin != originSweep {
		x.origin = origin
		x.batch.Queue(originSQL, origin)
	}
}

// slots is how many claims of a queue the exchange may make, apart from aged tasks.
func (x *exchange) slots(queue int) int {
	return min(x.request.FreeSlots[queue], maxBatch) - x.agedSlots[queue]
}

// nextDueUnset is the NextDue of queues where nothing waits.
func nextDueUnset(queues int) []time.Duration {
	return slices.Repeat([]time.Duration{-1}, queues)
}

// maxBatch is how many tasks one statement changes: the number of events that one row
// of the outbox can hold.
const maxBatch = 1024
