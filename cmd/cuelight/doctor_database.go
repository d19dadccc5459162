package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// maxSkew is the clock difference that is not worth a warning. The work uses the
// database's clock only, but commands print times by this one.
const maxSkew = 5 * time.Second

func (d *doctor) checkDatabase(ctx context.Context) []finding {
	target := d.c.Target()
	if target.Private {
		data, err := d.c.DataPath()
		if err != nil {
			return nil // checkDataDir has found it
		}
		if dir := filepath.Join(data, dbconn.PrivateDir); !dbconn.PrivateExists(dir) {
			if err := d.c.checkNewDatabase(ctx); err != nil {
				return errorFinding(err)
			}
			return ok("private, in %s (it will be created); %s", dir, target.Origin)
		}
	}
	db, err := d.c.Connect(ctx)
	if err != nil {
		return errorFinding(err)
	}
	d.db = db
	server, err := db.Inspect(ctx)
	if err != nil {
		return errorFinding(db.WithName(err))
	}
	where := ""
	if db.PrivateServer() != nil {
		where = ", in " + usererr.Printable(db.PrivateServer().Dir())
	}
	found := ok("%s%s, PostgreSQL %s; %s", db.Name, where, server.Version, target.Origin)
	if server.Major < postgres.MinMajor {
		found = append(found, failure("PostgreSQL "+server.Version+" is too old",
			"version "+strconv.Itoa(postgres.MinMajor)+" or newer is needed")...)
	}
	if server.IsStandby {
		found = append(found, failure("it is a standby, which cannot be written to", "use the address of the primary server")...)
	}
	d.server = &server
	return found
}

func (d *doctor) checkClock(context.Context) []finding {
	skew, inexact := d.server.ClockSkew, d.server.SkewError
	if skew > maxSkew+2*inexact {
		return warning(
			fmt.Sprintf("the clocks of this machine and the database differ by %s", console.Duration(skew)),
			"run NTP on both")
	}
	return ok("within %s of the database's", console.Duration(skew+inexact))
}

func (d *doctor) checkTables(ctx context.Context) []finding {
	if err := d.db.CheckTables(ctx); err != nil {
		return errorFinding(err)
	}
	return ok("version %d", store.SchemaVersion)
}

// checkNotifications checks that a notification arrives, on a connection like the workers'.
func (d *doctor) checkNotifications(ctx context.Context) []finding {
	took, err := d.db.TimeNotification(ctx)
	if err != nil {
		return failure("they do not arrive: "+usererr.FirstLine(err.Error()),
			"use an address that leads to the server itself, not to a pooler in transaction mode, "+
				"or set --notify-url; until then only the sweep finds work, seconds later")
	}
	return ok("arrive within %s", console.Duration(took))
}

// checkLocations compares the data and the publish directory with those of the database's tasks.
func (d *doctor) checkLocations(ctx context.Context) (found []finding) {
	if d.db.CheckTables(ctx) != nil {
		return nil // which checkTables has found
	}
	data, published := d.c.Buckets()
	for _, l := range []struct {
		kind    video.ContentKind
		address string
		path    func() (string, error)
	}{{video.DataContent, data, d.c.DataPath}, {video.PublishContent, published, d.c.PublishPath}} {
		location, err := d.c.openLocation(l.address, l.path)
		if err == nil {
			err = daemon.CheckLocation(ctx, d.db.Store, l.kind, location)
		}
		if err != nil {
			found = append(found, errorFinding(err)...)
		}
	}
	if len(found) == 0 {
		return ok("the tasks of this database have their files there")
	}
	return found
}

func (d *doctor) checkWorkers(ctx context.Context) []finding {
	workers, err := d.db.Store.Workers(ctx, false)
	if err != nil {
		return nil // the tables are missing, which checkTables has found
	}
	alive := 0
	for _, w := range workers {
		if daemon.IsAlive(w) {
			alive++
		}
	}
	found := ok("%d", alive)
	if alive == 0 {
		found = ok("none: tasks wait for cuelight serve")
	}
	waiting, err := report.New(d.db.Store.DB(), d.db.Store.Graph()).Unoffered(ctx, workers)
	if err != nil {
		return append(found, errorFinding(err)...)
	}
	for _, u := range waiting {
		found = append(found, warning(fmt.Sprintf("%s (tasks: %d)", u, u.Tasks),
			"start a worker that offers it: cuelight work or serve with --label; or change what the tasks require")...)
	}
	return found
}

// checkStandby checks that the standby replays what the primary has now.
func (d *doctor) checkStandby(ctx context.Context) []finding {
	took, err := d.db.TimeReplay(ctx)
	if err != nil {
		return failure("clients read from the primary: the standby "+d.db.StandbyName+" cannot be used: "+usererr.FirstLine(err.Error()),
			"check --read-database-url and the replication; the address must lead to a standby of this database")
	}
	return ok("%s, %s behind", d.db.StandbyName, console.Duration(took))
}
