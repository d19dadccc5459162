package notify

import (
	"context"
	"crypto/rand"
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

// Options say what a [Listener] listens to. Channels must be set.
type Options struct {
	// Channels are the channels to listen to.
	Channels []string

	// CheckEvery is the time between two notifications to itself. Default 10 s.
	CheckEvery time.Duration

	// CheckWithin is how long such a notification may take to come back before
	// the connection is given up. Default 5 s.
	CheckWithin time.Duration

	// RetryAtMost is the longest pause between two tries to connect; they
	// begin at 50 ms. Default 5 s.
	RetryAtMost time.Duration

	// OnChange is told when the Listener begins and ceases to hear, with the
	// reason in the second case. It must not block.
	OnChange func(connected bool, err error)
}

// Listener listens on a connection of its own. Make one with [New]; each reader
// of news needs its own, since [Wakes.Take] empties it.
type Listener struct {
	*Wakes
	pool  *pgxpool.Pool
	opts  Options
	own   string // the channel of its notifications to itself
	pause *backoff.ExponentialBackOff

	mu        sync.Mutex
	conn      *pgx.Conn // nil while there is none
	since     time.Time // it was opened
	heard     int       // how many channels this connection listens to
	connected bool
	tried     bool
	echo      chan struct{}
	fresh     chan struct{} // a connection has just begun to hear
}

// New returns a Listener that connects as the pool does and checks itself
// through the pool. It does nothing before [Listener.Run].
func New(pool *pgxpool.Pool, o Options) *Listener {
	o.Channels = slices.Compact(slices.Sorted(slices.Values(o.Channels)))
	if o.CheckEvery <= 0 {
		o.CheckEvery = 10 * time.Second
	}
	if o.CheckWithin <= 0 {
		o.CheckWithin = 5 * time.Second
	}
	if o.RetryAtMost <= 0 {
		o.RetryAtMost = 5 * time.Second
	}
	if o.OnChange == nil {
		o.OnChange = func(bool, error) {}
	}
	return &Listener{
		Wakes: NewWakes(),
		pool:  pool,
		opts:  o,
		own:   "cuelight_echo_" + strings.ToLower(rand.Text()),
		pause: backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(50*time.Millisecond),
			backoff.WithMaxInterval(o.RetryAtMost),
			backoff.WithMaxElapsedTime(0),
		),
		echo:  make(chan struct{}, 1),
		fresh: make(chan struct{}, 1),
	}
}

// Connected reports whether the Listener hears: it is connected and listens to
// all its channels. Where it does not, news comes only by other ways.
func (l *Listener) Connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.connected
}

// Run listens until ctx is done, and then returns nil.
func (l *Listener) Run(ctx context.Context) error {
	if len(l.opts.Channels) == 0 {
		return errors.New("listen: no channels")
	}
	inner := pgxlisten.Listener{
		Connect:  l.connect,
		LogError: func(_ context.Context, err error) { l.lost(ctx, err) },
		// The pauses are made in connect, where they can grow.
		ReconnectDelay: -1,
	}
	for _, c := range l.opts.Channels {
		inner.Handle(c, handler{l})
	}
	inner.Handle(l.own, handler{l})

	ctx, cancel := context.WithCancel(ctx)
	var checking sync.WaitGroup
	checking.Go(func() { l.check(ctx) })
	err := inner.Listen(ctx)
	cancel()
	checking.Wait()
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return fmt.Errorf("listen: %w", err)
}

// connect is called for every connection, the first one too. A connection
// that proved itself starts the pauses from the beginning.
func (l *Listener) connect(ctx context.Context) (*pgx.Conn, error) {
	for {
		if err := sleep(ctx, l.nextPause()); err != nil {
			return nil, err
		}
		conn, err := l.dial(ctx)
		if err != nil {
			l.lost(ctx, err)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			continue
		}
		l.mu.Lock()
		l.conn, l.heard, l.since = conn, 0, time.Now()
		l.mu.Unlock()
		return conn, nil
	}
}

// dial does not wait longer for a server that says nothing than a connection
// may be deaf.
func (l *Listener) dial(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, max(l.opts.CheckWithin, 10*time.Second))
	defer cancel()
	return pgx.ConnectConfig(ctx, l.pool.Config().ConnConfig)
}

// nextPause is nothing for the very first connection and then grows, until a
// connection proves itself.
func (l *Listener) nextPause() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.tried {
		l.tried = true
		return 0
	}
	return l.pause.NextBackOff()
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// handler keeps what pgxlisten calls off the Listener's public methods.
type handler struct{ l *Listener }

func (h handler) HandleNotification(_ context.Context, n *pgconn.Notification, _ *pgx.Conn) error {
	if n.Channel == h.l.own {
		select {
		case h.l.echo <- struct{}{}:
		default:
		}
		return nil
	}
	h.l.Add(n.Channel)
	return nil
}

// HandleBacklog is called for each channel once a new connection listens to
// it. After the last one nothing is missed any more, and whatever was missed
// before is made good by looking everywhere.
func (h handler) HandleBacklog(context.Context, string, *pgx.Conn) error {
	l := h.l
	l.mu.Lock()
	l.heard++
	all := l.heard == len(l.opts.Channels)+1
	l.connected = all
	l.mu.Unlock()
	if all {
		l.opts.OnChange(true, nil)
		l.Add(l.opts.Channels...)
		select {
		case l.fresh <- struct{}{}:
		default:
		}
	}
	return nil
}

// lost notes that the connection is gone, and says so once.
func (l *Listener) lost(ctx context.Context, err error) {
	l.mu.Lock()
	was := l.connected
	l.connected, l.conn = false, nil
	l.mu.Unlock()
	if was && ctx.Err() == nil {
		l.opts.OnChange(false, err)
	}
}
