package notify

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgxlisten"
)

// Options configure a [Listener]. Channels must be set.
type Options struct {
	// Channels are the channels to listen to.
	Channels []string

	// AlsoWake are further sets that get the same channels, for other readers in this
	// process.
	AlsoWake []*Wakes

	// ConnConfig is the configuration of the connection, for a pool that connects through
	// a pooler in transaction mode. It must lead to the same database. Default: the
	// pool's.
	ConnConfig *pgx.ConnConfig

	// BeforeConnect changes a copy of ConnConfig before each connection, as that of a pool does. Default: none.
	BeforeConnect func(context.Context, *pgx.ConnConfig) error

	// CheckInterval is the time between two checks of the connection: notifications to
	// itself. Default 10 s.
	CheckInterval time.Duration

	// CheckTimeout is how long such a notification may take before the connection is
	// closed, and how long the server may take to answer LISTEN. Default 5 s.
	CheckTimeout time.Duration

	// KeepSession is how long the server keeps the session after the host has vanished;
	// it may be up to 15 s longer. It should be at least the worker's lease, or others
	// see the session end while the worker still works. It matters for TCP connections
	// only. Default 36 s.
	KeepSession time.Duration

	// MaxRetryDelay is the longest delay between two attempts to connect. The delays
	// start at 50 ms and grow, each with a random part, so that processes do not
	// reconnect all at once. Default 5 s.
	MaxRetryDelay time.Duration

	// OnChange is called when the Listener becomes connected and disconnected, and once
	// if it cannot connect at first. When it is not connected, err is the reason, which
	// may be [ErrPooled]. The calls come one after the other from their own goroutine.
	// While a call blocks, changes that revert each other are left out.
	OnChange func(connected bool, err error)

	// OnAlive is called at least every CheckInterval + 3*CheckTimeout, whether connected
	// or not, as long as the Listener is not stuck. It is for a watchdog and must not
	// block.
	OnAlive func()
}

// Listener listens on its own connection. Create one with [New]. [Wakes.Take] empties a
// set, so each reader needs its own: one reads the Listener's, others those of
// Options.AlsoWake.
type Listener struct {
	*Wakes
	pool        *pgxpool.Pool
	options     Options
	echoChannel string // the channel of its notifications to itself
	lockKey     int64  // of the session's lock
	echo        chan struct{}
	checkNow    chan struct{} // asks for a check: after connecting, and by Check
	changed     chan struct{} // there are pendingChanges

	poolerRetryDelay time.Duration // between attempts to connect after ErrPooled

	mu             sync.Mutex
	backoff        *backoff.ExponentialBackOff
	triedOnce      bool
	conn           *pgx.Conn   // nil while there is none
	listenTimer    *time.Timer // closes a connection that does not answer LISTEN
	listeningTo    int         // how many channels this connection listens to
	connected      bool
	lockHeld       bool      // the session's lock
	pooled         bool      // the last connection was through a pooler
	direct         bool      // it was to the server itself
	deadline       time.Time // of the current step; zero while listening
	state          state
	pendingChanges []change
}

// New returns a Listener that checks itself through the pool. It does nothing
// before [Listener.Run].
func New(pool *pgxpool.Pool, o Options) *Listener {
	o.Channels = slices.Compact(slices.Sorted(slices.Values(o.Channels)))
	if o.CheckInterval <= 0 {
		o.CheckInterval = 10 * time.Second
	}
	if o.CheckTimeout <= 0 {
		o.CheckTimeout = 5 * time.Second
	}
	if o.KeepSession <= 0 {
		o.KeepSession = 36 * time.Second
	}
	if o.MaxRetryDelay <= 0 {
		o.MaxRetryDelay = 5 * time.Second
	}
	if o.OnChange == nil {
		o.OnChange = func(bool, error) {}
	}
	if o.OnAlive == nil {
		o.OnAlive = func() {}
	}
	return &Listener{
		Wakes:            NewWakes(),
		pool:             pool,
		options:          o,
		echoChannel:      "cuelight_echo_" + strings.ToLower(rand.Text()),
		lockKey:          newLockKey(),
		backoff:          newBackoff(o.MaxRetryDelay),
		poolerRetryDelay: time.Minute,
		echo:             make(chan struct{}, 1),
		checkNow:         make(chan struct{}, 1),
		changed:          make(chan struct{}, 1),
	}
}

// newLockKey returns a random positive number, which no other process will choose.
func newLockKey() int64 {
	var b [8]byte
	for {
		rand.Read(b[:])
		if key := int64(binary.BigEndian.Uint64(b[:]) >> 1); key != 0 {
			return key
		}
	}
}

// Connected reports whether the Listener is connected and listens to all its channels. If
// not, no notifications arrive, and its readers must poll.
func (l *Listener) Connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.connected
}

// Session returns the key of the advisory lock that the Listener's session holds, shared,
// and whether the current session holds it. The key does not change during the Listener's
// life. The lock ends with the session: while others see it in pg_locks (locktype
// advisory, objsubid 1, classid key>>32, objid key&0xffffffff, their own database), this
// process was alive a moment ago. Through a pooler no lock is taken, because the pooler
// would keep it after the end of the process; the key is then 0.
func (l *Listener) Session() (key int64, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pooled {
		return 0, false
	}
	return l.lockKey, l.lockHeld
}

// Direct reports whether the last connection was to the server itself and not to a proxy:
// whether its address is the one that the server reports for itself.
func (l *Listener) Direct() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.direct
}

// Run listens until ctx is done, and then returns nil. It must be called once.
func (l *Listener) Run(ctx context.Context) error {
	if len(l.options.Channels) == 0 {
		return errors.New("listen: no channels")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	inner := pgxlisten.Listener{
		Connect:  l.connect,
		LogError: l.connectionEnded,
		// connect waits between attempts, with growing delays.
		ReconnectDelay: -1,
	}
	for _, c := range l.options.Channels {
		inner.Handle(c, handler{l})
	}
	inner.Handle(l.echoChannel, handler{l})

	l.setDeadline(0)
	var helpers sync.WaitGroup
	helpers.Go(func() { l.check(ctx) })
	helpers.Go(func() { l.reportChanges(ctx) })
	err := inner.Listen(ctx)
	cancel()
	helpers.Wait()
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return fmt.Errorf("listen: %w", err)
}

// handler has the methods that pgxlisten calls, so that they are not public methods of
// the Listener.
type handler struct{ l *Listener }

func (h handler) HandleNotification(_ context.Context, n *pgconn.Notification, _ *pgx.Conn) error {
	if n.Channel != h.l.echoChannel {
		h.l.AddPayload(n.Channel, n.Payload)
		for _, w := range h.l.options.AlsoWake {
			w.AddPayload(n.Channel, n.Payload)
		}
		return nil
	}
	signal(h.l.echo)
	return nil
}

// HandleBacklog is called for each channel once a new connection listens to it. After the
// last one no notification is missed any more, and every channel is woken for those that
// were missed before.
func (h handler) HandleBacklog(context.Context, string, *pgx.Conn) error {
	l := h.l
	l.mu.Lock()
	l.listeningTo++
	all := l.listeningTo == len(l.options.Channels)+1
	if all {
		l.connected, l.deadline = true, time.Time{}
		l.listenTimer.Stop()
	}
	l.mu.Unlock()
	if all {
		l.wake(l.options.Channels...)
		l.setState(listening, nil)
		signal(l.checkNow)
	}
	return nil
}

// wake adds the channels for all readers.
func (l *Listener) wake(channels ...string) {
	l.Add(channels...)
	for _, w := range l.options.AlsoWake {
		w.Add(channels...)
	}
}
