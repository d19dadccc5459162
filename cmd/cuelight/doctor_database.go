package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/store"
)

const (
	// maxSkew is the clock difference that is not worth a warning. The work uses the
	// database's clock only, but commands print times by this one.
	maxSkew = 5 * time.Second
	// notifyTimeout is how long a notification may take.
	notifyTimeout = 5 * time.Second
)

// checkDatabase returns only errors of closing the database.
func (d *doctor) checkDatabase(ctx context.Context) error {
	choice := d.c.Source()
	if choice.Private {
		data, err := d.c.DataPath()
		if err != nil {
			return nil // it has been reported
		}
		if dir := filepath.Join(data, dbconn.PrivateDir); !dbconn.PrivateExists(dir) {
			d.ok("database", "private, in %s (it will be created); %s", dir, choice.Origin)
			return nil
		}
	}
	db, err := d.c.Connect(ctx)
	if err != nil {
		p := dbconn.Explain(err)
		d.wrong("database", p.Text, p.Hint)
		return nil
	}
	if d.checkServer(ctx, db) {
		d.checkTables(ctx, db)
		d.checkListener(ctx, db)
		d.checkWorkers(ctx, db)
	}
	return db.Close()
}

const serverSQL = `
/* doctor */
select current_setting('server_version'), current_setting('server_version_num')::int,
       pg_is_in_recovery(), clock_timestamp()`

func (d *doctor) checkServer(ctx context.Context, db *dbconn.Database) bool {
	var version string
	var number int
	var standby bool
	var theirs time.Time
	// Connecting takes time, which would count as skew.
	err := db.Pool.Ping(ctx)
	asked := time.Now()
	if err == nil {
		err = db.Pool.QueryRow(ctx, serverSQL).Scan(&version, &number, &standby, &theirs)
	}
	took := time.Since(asked)
	if err != nil {
		p := dbconn.Explain(db.Describe(err))
		d.wrong("database", p.Text, p.Hint)
		return false
	}
	where := ""
	if db.PrivateServer() != nil {
		where = ", in " + usererr.Printable(db.PrivateServer().Dir())
	}
	d.ok("database", "%s%s, PostgreSQL %s; %s", db.Name, where, version, db.Source.Origin)
	if number < postgres.MinMajor*10000 {
		d.wrong("database", "PostgreSQL "+version+" is too old",
			"version "+strconv.Itoa(postgres.MinMajor)+" or newer is needed")
	}
	if standby {
		d.wrong("database", "it is a standby, which cannot be written to", "use the address of the primary server")
	}
	skew := theirs.Sub(asked.Add(took / 2)).Abs()
	if skew > maxSkew+took {
		d.warn("clock",
			fmt.Sprintf("the clocks of this machine and the database differ by %s", console.Duration(skew)),
			"run NTP on both")
	} else {
		d.ok("clock", "within %s of the database's", console.Duration(skew+took/2))
	}
	return true
}

func (d *doctor) checkTables(ctx context.Context, db *dbconn.Database) {
	err := db.Store.Check(ctx)
	if err == nil {
		d.ok("tables", "version %d", store.SchemaVersion)
		return
	}
	p := dbconn.Explain(err)
	d.wrong("tables", p.Text, p.Hint)
}

// checkListener checks that a notification arrives, on a connection like the workers'.
func (d *doctor) checkListener(ctx context.Context, db *dbconn.Database) {
	took, err := timeNotification(ctx, db)
	if err != nil {
		d.wrong("notifications", "they do not arrive: "+usererr.FirstLine(err.Error()),
			"use an address that leads to the server itself, not to a pooler in transaction mode, "+
				"or set --notify-url; until then only the sweep finds work, seconds later")
		return
	}
	d.ok("notifications", "arrive within %s", console.Duration(took))
}

// channel is used by doctor only.
const channel = "cuelight_doctor"

func timeNotification(ctx context.Context, db *dbconn.Database) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	connected := make(chan error, 8)
	listener := notify.New(db.Pool, notify.Options{
		Channels: []string{channel}, OnChange: func(_ bool, err error) { connected <- err },
	})
	ended := make(chan error, 1)
	listening, stop := context.WithCancel(ctx)
	go func() { ended <- listener.Run(listening) }()
	defer func() { stop(); <-ended }()

	select {
	case err := <-connected:
		if err != nil {
			return 0, err
		}
	case <-ctx.Done():
		return 0, errors.New("no connection to listen on")
	}
	// Connecting wakes the listener too.
	for range len(listener.C()) {
		<-listener.C()
	}
	listener.Take()
	began := time.Now()
	if _, err := db.Pool.Exec(ctx, "select pg_notify($1, '')", channel); err != nil {
		return 0, err
	}
	for {
		select {
		case <-listener.C():
			if len(listener.Take()) > 0 {
				return time.Since(began), nil
			}
		case <-ctx.Done():
			return 0, fmt.Errorf("none within %s", notifyTimeout)
		}
	}
}

func (d *doctor) checkWorkers(ctx context.Context, db *dbconn.Database) {
	workers, err := db.Store.Workers(ctx, false)
	if err != nil {
		return // the tables are missing, which has been reported
	}
	alive := 0
	for _, w := range workers {
		if w.HeartbeatAge < daemon.SilentAfter {
			alive++
		}
	}
	if alive == 0 {
		d.ok("workers", "none: tasks wait for cuelight serve")
		return
	}
	d.ok("workers", "%d", alive)
}
