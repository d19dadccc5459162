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

// Options say what a [Listener] listens to. Channels must be set.
type Options struct {
	// Channels are the channels to listen to.
	Channels []string

	// Also are other readers of the same news in this process.
	Also []*Wakes

	// ConnConfig is how to connect. Default: as the pool does. It is for a pool
	// that leads through a pooler in transaction mode, and must lead to the
	// same database.
	ConnConfig *pgx.ConnConfig

	// CheckEvery is the time between two notifications to itself. Default 10 s.
	CheckEvery time.Duration

	// CheckWithin is how long such a notification may take to come back before
	// the connection is given up, and how long the server may take to answer
	// to LISTEN. Default 5 s.
	CheckWithin time.Duration

	// Keep is for how long, at least, the server keeps the session of a process
	// that has fallen silent, and at most 15 s longer. It should not be less than
	// that process' lease, or others will see its session end while it still
	// works. Only TCP connections need it. Default 36 s.
	Keep time.Duration

	// RetryAtMost is the longest pause between two tries to connect; they
	// begin at 50 ms, and each is longer or shorter by chance, so that not all
	// processes return at the same instant. Default 5 s.
	RetryAtMost time.Duration

	// OnChange is told when the Listener begins and ceases to hear, and once
	// if it cannot begin; when it does not hear, with the reason, which may be
	// [ErrPooled]. It is called from a goroutine of its own, one change after
	// the other; while it blocks, changes that were undone meanwhile go untold.
	OnChange func(connected bool, err error)

	// Alive is called as long as the Listener goes round, whether it hears or
	// not: at least every CheckEvery + 3*CheckWithin, and no longer once it is
	// stuck. It is meant for a watchdog and must not block.
	Alive func()
}

// Listener listens on a connection of its own. Make one with [New]; each reader
// of news needs Wakes of its own, since [Wakes.Take] empties them: one reads the
// Listener's, others those of Options.Also.
type Listener struct {
	*Wakes
	pool  *pgxpool.Pool
	opts  Options
	own   string // the channel of its notifications to itself
	key   int64  // of the session's lock
	echo  chan struct{}
	fresh chan struct{} // a connection has just begun to hear, or somebody doubts it
	turn  chan struct{} // there is something to tell

	// The pause between tries while a pooler is in the way.
	pooledPause time.Duration

	mu        sync.Mutex
	pause     *backoff.ExponentialBackOff
	tried     bool
	conn      *pgx.Conn   // nil while there is none
	answer    *time.Timer // cuts a connection that does not answer to LISTEN
	heard     int         // how many channels this connection listens to
	connected bool
	held      bool      // the session's lock
	pooled    bool      // the last connection led through a pooler
	direct    bool      // it led to the server itself
	due       time.Time // when the next step has to be done; zero while listening
	state     state
	untold    []change
}

// New returns a Listener that checks itself through the pool. It does nothing
// before [Listener.Run].
func New(pool *pgxpool.Pool, o Options) *Listener {
	o.Channels = slices.Compact(slices.Sorted(slices.Values(o.Channels)))
	if o.CheckEvery <= 0 {
		o.CheckEvery = 10 * time.Second
	}
	if o.CheckWithin <= 0 {
		o.CheckWithin = 5 * time.Second
	}
	if o.Keep <= 0 {
		o.Keep = 36 * time.Second
	}
	if o.RetryAtMost <= 0 {
		o.RetryAtMost = 5 * time.Second
	}
	if o.OnChange == nil {
		o.OnChange = func(bool, error) {}
	}
	if o.Alive == nil {
		o.Alive = func() {}
	}
	return &Listener{
		Wakes:       NewWakes(),
		pool:        pool,
		opts:        o,
		own:         "cuelight_echo_" + strings.ToLower(rand.Text()),
		key:         newKey(),
		pause:       newPause(o.RetryAtMost),
		pooledPause: time.Minute,
		echo:        make(chan struct{}, 1),
		fresh:       make(chan struct{}, 1),
		turn:        make(chan struct{}, 1),
	}
}

// newKey draws a positive number. Nobody else will draw it.
func newKey() int64 {
	var b [8]byte
	for {
		rand.Read(b[:])
		if key := int64(binary.BigEndian.Uint64(b[:]) >> 1); key != 0 {
			return key
		}
	}
}

// Connected reports whether the Listener hears: it is connected and listens to
// all its channels. Where it does not, news comes only by other ways.
func (l *Listener) Connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.connected
}

// Session returns the key of the advisory lock that the Listener's session
// holds, shared, and whether the present one does hold it. The key stays the
// same for the Listener's life. The lock ends with the session, so while others
// see it in pg_locks (locktype advisory, objsubid 1, classid key>>32, objid
// key&0xffffffff, their own database), this process was there a moment ago.
// Through a pooler, which would hide the end of the process, no lock is taken,
// and the key is 0.
func (l *Listener) Session() (key int64, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pooled {
		return 0, false
	}
	return l.key, l.held
}

// Direct reports whether the last connection led to the server itself, by its
// own account of its address, and not to a proxy or another stand-in.
func (l *Listener) Direct() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.direct
}

// Run listens until ctx is done, and then returns nil. It must be called once.
func (l *Listener) Run(ctx context.Context) error {
	if len(l.opts.Channels) == 0 {
		return errors.New("listen: no channels")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	inner := pgxlisten.Listener{
		Connect:  l.connect,
		LogError: l.ended,
		// The pauses are made in connect, where they can grow.
		ReconnectDelay: -1,
	}
	for _, c := range l.opts.Channels {
		inner.Handle(c, handler{l})
	}
	inner.Handle(l.own, handler{l})

	l.expect(0)
	var others sync.WaitGroup
	others.Go(func() { l.check(ctx) })
	others.Go(func() { l.tell(ctx) })
	err := inner.Listen(ctx)
	cancel()
	others.Wait()
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return fmt.Errorf("listen: %w", err)
}

// handler keeps what pgxlisten calls off the Listener's public methods.
type handler struct{ l *Listener }

func (h handler) HandleNotification(_ context.Context, n *pgconn.Notification, _ *pgx.Conn) error {
	if n.Channel != h.l.own {
		h.l.spread(n.Channel)
		return nil
	}
	handleSignal(h.l.echo)
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
	if all {
		l.connected, l.due = true, time.Time{}
		l.answer.Stop()
	}
	l.mu.Unlock()
	if all {
		l.spread(l.opts.Channels...)
		l.become(hearing, nil)
		handleSignal(l.fresh)
	}
	return nil
}

// spread notes news for all readers.
func (l *Listener) spread(channels ...string) {
	l.Add(channels...)
	for _, w := range l.opts.Also {
		w.Add(channels...)
	}
}

// signal leaves one value in c, which has room for one.
func handleSignal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
