package remote

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// worker is a remote worker as this coordinator knows it. The lock of the Coordinator guards its
// fields from claims on; the others never change.
type worker struct {
	id         store.ID
	principal  string
	host       string
	offers     string // what it offers, sorted, in one text: the key of its class
	class      *class
	exchanging chan struct{} // has a value during an exchange: a worker has one at a time
	since      time.Time     // when this coordinator got to know it
	lease      time.Duration

	claims map[store.ID]engine.Claim // by token
	lost   map[store.ID]bool         // tokens of lost claims: whether they were cancelled
	// uncertainSince is when an exchange failed, here or at another coordinator, that may yet be committed; zero for none.
	uncertainSince time.Time
	claimsRead     time.Time // from the database
	free           []int     // slots after the last exchange, by queue
	sequence       int64     // the highest of its exchanges
	draining       bool
	hasLost        bool            // claims, since the last heartbeat
	controls       controlsBody    // as last sent
	wait           chan waitResult // of the request that waits; nil for none. Has room for one

	lastRequest  time.Time // when it arrived
	renewed      time.Time // when its lease was renewed last
	isUsed       bool      // a request came after its registration
	disconnected bool      // its connection has ended since
	running      []store.Running
	progressed   []store.Running        // since the last renewal
	started      bool                   // running has changed since the last renewal
	progressAt   map[store.ID]time.Time // of claims, by token: when they showed progress, or were seen first
}

// waitResult ends a waiting request: with claims, with an error, or because the controls changed.
type waitResult struct {
	claims []engine.Claim
	err    error
}

// update records an exchange. The lock is held.
func (w *worker) update(graph store.Graph, reports []engine.Report, free []int, out engine.ExchangeResult) {
	locked := make(map[store.ID]bool)
	for _, r := range out.Locked {
		locked[r.Token] = true
	}
	for _, r := range reports {
		if !locked[r.Token] {
			delete(w.claims, r.Token)
			w.running = slices.DeleteFunc(w.running, func(a store.Running) bool { return a.Token == r.Token })
			w.started = true
		}
	}
	w.free = slices.Clone(free)
	for _, claim := range out.Claims {
		w.claims[claim.Token] = claim
		queue := graph.WorkQueue(claim.Stage)
		w.free[queue] = max(w.free[queue]-1, 0)
	}
}

// HasClaims reports whether workers have claims of this coordinator. The claims of a worker that is not heard of count
// until it is forgotten.
func (c *Coordinator) HasClaims() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.workers {
		if len(w.claims) > 0 {
			return true
		}
	}
	return false
}

// answer ends the request that waits for a worker, if there is one. The lock is held.
func (c *Coordinator) answer(w *worker, r waitResult) {
	if w.wait == nil {
		return
	}
	w.wait <- r // has room
	w.wait = nil
	c.waiting = slices.DeleteFunc(c.waiting, func(other *worker) bool { return other == w })
}

// findWorker returns the registered worker that sends a request. Only requests of its own principal show
// that a worker lives.
func (c *Coordinator) findWorker(ctx context.Context, id store.ID, principal string) (w *worker, err error) {
	c.mu.Lock()
	w = c.workers[id]
	isRenewed := w != nil && (w.isRenewed() || len(w.claims) == 0 && !w.disconnected && time.Since(w.renewed) < w.lease/4)
	c.mu.Unlock()
	switch {
	case w == nil:
		w, err = c.readWorker(ctx, id, principal)
	case w.principal != principal:
		err = store.ErrWorkerUnknown
	case !isRenewed:
		err = c.renewReturned(ctx, w)
	}
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w.lastRequest, w.disconnected, w.isUsed = time.Now(), false, true
	return w, nil
}

// readWorker reads a worker that another coordinator registered.
func (c *Coordinator) readWorker(ctx context.Context, id store.ID, principal string) (*worker, error) {
	found, err := c.store.FindWorkers(ctx, []store.ID{id})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 || found[0].Principal != principal {
		return nil, store.ErrWorkerUnknown
	}
	return c.adopt(ctx, found[0])
}

// adopt adds a worker that is registered in the database, with its claims.
func (c *Coordinator) adopt(ctx context.Context, row store.Worker) (*worker, error) {
	held, err := c.engine.ReadClaims(ctx, row.ID)
	if err != nil {
		return nil, err
	}
	w := c.newWorker(row)
	w.uncertainSince = time.Now()
	for _, claim := range held {
		w.claims[claim.Token] = claim.Claim
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.workers[row.ID]; other != nil {
		return other, nil
	}
	c.addWorker(w)
	return w, nil
}

// addWorker adds a worker to its class. The lock is held.
func (c *Coordinator) addWorker(w *worker) {
	c.workers[w.id] = w
	if c.classes[w.offers] == nil {
		c.classes[w.offers] = w.class
		w.class.markReady() // what was ready before
	}
	w.class = c.classes[w.offers]
	w.class.workers++
}

// endWorker removes a worker that the database does not know as registered any more, and ends its waiting
// request. The lock is held.
func (c *Coordinator) endWorker(w *worker) {
	c.answer(w, waitResult{err: store.ErrWorkerUnknown})
	c.removeWorker(w)
}

// removeWorker removes a worker, if it is known, and its class if that is empty then. The lock is held.
func (c *Coordinator) removeWorker(w *worker) {
	if c.workers[w.id] != w {
		return
	}
	delete(c.workers, w.id)
	for token := range w.claims {
		c.checks.forget(token)
	}
	if w.class.workers--; w.class.workers == 0 {
		delete(c.classes, w.offers)
	}
}

func (c *Coordinator) newWorker(row store.Worker) *worker {
	offers := row.Offers()
	slices.Sort(offers)
	class := &class{lacks: make([]bool, len(c.stages)), queues: make([]engine.ReadyQueue, c.graph.Queues())}
	for i := range c.stages {
		class.lacks[i] = len(row.Lacks(c.o.Pipeline.Requires(i))) > 0
	}
	return &worker{
		offers: strings.Join(offers, "\n"), class: class,
		id: row.ID, principal: row.Principal, host: row.Host, exchanging: make(chan struct{}, 1),
		claims: make(map[store.ID]engine.Claim), lost: make(map[store.ID]bool), progressAt: make(map[store.ID]time.Time),
		free: make([]int, c.graph.Queues()), since: time.Now(), lease: row.Lease, lastRequest: time.Now(), draining: row.DrainAt != nil,
	}
}

// claimsOf returns those of the claims with some tokens that a worker holds. Claims that it made
// elsewhere are read from the database, once, however many tokens are unknown.
func (c *Coordinator) claimsOf(ctx context.Context, w *worker, tokens []store.ID) (map[store.ID]engine.Claim, error) {
	c.mu.Lock()
	held, unknown := w.find(tokens)
	c.mu.Unlock()
	if len(unknown) == 0 {
		return held, nil
	}
	if err := c.readClaims(ctx, w); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	held, unknown = w.find(tokens)
	for _, token := range unknown {
		w.rememberLost(token, false)
	}
	return held, nil
}

// firstOfEach returns the first element for each token, and the tokens.
func firstOfEach[T any](list []T, tokenOf func(T) store.ID) (first []T, tokens []store.ID) {
	seen := make(map[store.ID]bool)
	for _, element := range list {
		if token := tokenOf(element); !seen[token] {
			seen[token] = true
			first, tokens = append(first, element), append(tokens, token)
		}
	}
	return first, tokens
}

// find returns the claims with some tokens, and the tokens that nothing is known about. The lock
// is held.
func (w *worker) find(tokens []store.ID) (held map[store.ID]engine.Claim, unknown []store.ID) {
	held = make(map[store.ID]engine.Claim)
	for _, token := range tokens {
		if claim, ok := w.claims[token]; ok {
			held[token] = claim
		} else if _, lost := w.lost[token]; !lost {
			unknown = append(unknown, token)
		}
	}
	return held, unknown
}

// maxLost bounds the memory of a worker that sends tokens of its own making.
const maxLost = 1000

func (w *worker) rememberLost(token store.ID, cancelled bool) {
	if len(w.lost) >= maxLost {
		clear(w.lost)
	}
	w.lost[token] = cancelled
}

// The server may commit an exchange whose connection was lost for as long as a transaction of it takes, so its claims are
// looked for again and again in that time.
const uncertainTime, uncertainPause = time.Minute, time.Second

// unlistedClaims returns the claims that a worker holds and does not list, because an answer did not
// arrive. It asks the database if there seem to be any, or if an exchange went to another coordinator.
// The caller has the worker's turn of exchanging.
func (c *Coordinator) unlistedClaims(ctx context.Context, w *worker, in exchangeRequest) (unlisted []engine.Claim, err error) {
	if in.Held == nil {
		return nil, nil
	}
	listed := make(map[store.ID]bool)
	for _, token := range in.Held {
		listed[token] = true
	}
	for _, report := range in.Reports {
		listed[report.Token] = true
	}
	c.mu.Lock()
	isLost := in.Sequence > w.sequence+1 || !w.uncertainSince.IsZero() && time.Since(w.claimsRead) >= uncertainPause
	for token := range w.claims {
		isLost = isLost || !listed[token]
	}
	isLost = isLost && !in.isOvertaken(w)
	c.mu.Unlock()
	if !isLost {
		return nil, nil
	}
	held, err := c.engine.ReadClaims(ctx, w.id)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w.claimsRead = time.Now()
	if time.Since(w.uncertainSince) > uncertainTime {
		w.uncertainSince = time.Time{}
	}
	// Claims that the worker does not list may have ended at another coordinator.
	maps.DeleteFunc(w.claims, func(token store.ID, _ engine.Claim) bool { return !listed[token] })
	for _, claim := range held {
		if !listed[claim.Token] {
			w.claims[claim.Token] = claim.Claim
			unlisted = append(unlisted, claim.Claim)
		}
	}
	return unlisted, nil
}

// readClaims reads the claims that a worker holds.
func (c *Coordinator) readClaims(ctx context.Context, w *worker) error {
	held, err := c.engine.ReadClaims(ctx, w.id)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, claim := range held {
		w.claims[claim.Token] = claim.Claim
	}
	return nil
}
