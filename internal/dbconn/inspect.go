package dbconn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cuelight/cuelight/internal/standby"
	"github.com/cuelight/cuelight/notify"
)

// ServerInfo describes a database's server.
type ServerInfo struct {
	Version   string
	Major     int
	IsStandby bool
	ClockSkew time.Duration // between this machine and the server, without a sign
	SkewError time.Duration // how inexact that is
}

const inspectSQL = `
/* inspect server */
select current_setting('server_version'), current_setting('server_version_num')::int / 10000,
       pg_is_in_recovery(), clock_timestamp()`

// Inspect asks the server about itself.
func (db *Database) Inspect(ctx context.Context) (s ServerInfo, err error) {
	if err := db.Pool.Ping(ctx); err != nil { // connecting takes time, which would count as skew
		return s, err
	}
	var clock time.Time
	asked := time.Now()
	err = db.Pool.QueryRow(ctx, inspectSQL).Scan(&s.Version, &s.Major, &s.IsStandby, &clock)
	s.SkewError = time.Since(asked) / 2
	s.ClockSkew = clock.Sub(asked.Add(s.SkewError)).Abs()
	return s, err
}

// notifyTimeout is how long a notification may take.
const notifyTimeout = 5 * time.Second

const (
	probeChannel = "cuelight_doctor"
	probeSQL     = `/* probe notifications */ select pg_notify('` + probeChannel + `', '')`
)

// TimeNotification returns how long a notification takes on a connection like that of a
// worker's listener.
func (db *Database) TimeNotification(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	connected := make(chan error, 8)
	listener := notify.New(db.Pool, notify.Options{
		Channels: []string{probeChannel}, ConnConfig: db.NotifyConfig,
		OnChange: func(_ bool, err error) { connected <- err },
	})
	ended := make(chan error, 1)
	go func() { ended <- listener.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	select {
	case err := <-connected:
		if err != nil {
			return 0, err
		}
	case <-ctx.Done():
		return 0, errors.New("no connection to listen on")
	}
	<-listener.C() // connecting wakes the listener, too
	listener.Take()
	began := time.Now()
	if _, err := db.Pool.Exec(ctx, probeSQL); err != nil {
		return 0, err
	}
	select {
	case <-listener.C():
		return time.Since(began), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("none within %s", notifyTimeout)
	}
}

// replayTimeout is how long the standby may take to replay what the primary has.
const replayTimeout = 10 * time.Second

// TimeReplay returns how long the standby takes to replay what the primary has now.
func (db *Database) TimeReplay(ctx context.Context) (time.Duration, error) {
	if err := db.OpenReadPool(ctx); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	r := standby.New(standby.Options{
		Primary: db.Reads.Pool, Position: db.Reads.Reserved, Standby: db.Reads.Standby, MaxLag: replayTimeout,
		Explain: Reason,
	})
	return r.TimeReplay(ctx)
}
