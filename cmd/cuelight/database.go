package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/store"
)

// connectWithin is how long one try to connect may take, where the address
// does not say.
const connectWithin = 10 * time.Second

// database is the database in use, and the private server if it is on that.
type database struct {
	choice choice
	name   string        // its address, without secrets
	pool   *pgxpool.Pool // of the work, and of commands
	store  *store.Store
	side   side // empty before openSide

	sessions sessions
	notify   *pgx.ConnConfig // for the listener; nil for the pool's

	options postgres.Options
	mu      sync.Mutex
	server  *postgres.Server // nil unless private
}

// openDatabase starts or adopts the private server, or takes the one that was
// chosen, and connects lazily: it is not known yet whether it answers.
func (c *cli) openDatabase(ctx context.Context) (*database, error) {
	db := &database{choice: c.choose()}
	config, err := c.configure(ctx, db)
	if err != nil {
		return nil, err
	}
	cc := config.ConnConfig
	if cc.ConnectTimeout == 0 {
		cc.ConnectTimeout = connectWithin
	}
	if cc.RuntimeParams["application_name"] == "" {
		cc.RuntimeParams["application_name"] = "cuelight"
	}
	db.name = masked(config)
	preferPrimary(cc)
	if db.notify, err = c.notifyConfig(cc); err != nil {
		return nil, errors.Join(err, db.close())
	}
	db.sessions.settle(config)
	if db.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, errors.Join(err, db.close())
	}
	db.store = store.New(db.pool, store.Video())
	return db, nil
}

// notifyConfig is how the listener connects, if that is not as the pool does.
func (c *cli) notifyConfig(pool *pgx.ConnConfig) (*pgx.ConnConfig, error) {
	if c.notifyURL == "" {
		return nil, nil
	}
	config, err := choice{address: c.notifyURL, why: "--notify-url or CUELIGHT_NOTIFY_URL"}.config()
	if err != nil {
		return nil, err
	}
	cc := config.ConnConfig
	preferPrimary(cc)
	if cc.RuntimeParams["application_name"] == "" {
		cc.RuntimeParams["application_name"] = pool.RuntimeParams["application_name"]
	}
	return cc, nil
}

// configure tells how to connect, which for a private server takes its start.
func (c *cli) configure(ctx context.Context, db *database) (*pgxpool.Config, error) {
	if !db.choice.private {
		return db.choice.config()
	}
	data, err := c.data()
	if err != nil {
		return nil, err
	}
	if err := makeWritable("data", data); err != nil {
		return nil, err
	}
	db.options = postgres.Options{Dir: filepath.Join(data, databaseDir)}
	anew := !isMade(db.options.Dir)
	if anew {
		if _, err := postgres.Find(""); err == nil {
			fmt.Fprintf(c.err, "cuelight: making a private database in %s\n", printable(db.options.Dir))
		}
	}
	if db.server, err = postgres.Start(ctx, db.options); err != nil {
		return nil, err
	}
	if home := db.server.Dir(); anew && home != db.options.Dir {
		fmt.Fprintf(c.err, "cuelight: it is in %s, since its server may not enter that directory\n", printable(home))
	}
	config, err := pgxpool.ParseConfig(db.server.URL())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read address of private server: %w", err), db.close())
	}
	return config, nil
}

// isMade reports whether a private database is in its directory: the cluster,
// or the word where it is instead. A start that failed leaves neither.
func isMade(dir string) bool {
	for _, name := range []string{"data", "moved-to"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

// ready makes sure that the tables are what this program needs. Those of a
// private database are made, or brought up to date; others are only looked at.
func (db *database) ready(ctx context.Context) error {
	if db.choice.private {
		_, err := db.store.Migrate(ctx)
		return err
	}
	err := db.store.Check(ctx)
	if p := explainSchema(err); p != nil {
		p.text += fmt.Sprintf(": %s (%s)", db.name, db.choice.why)
		return p
	}
	return err
}

// open is openDatabase for commands that need it now.
func (c *cli) open(ctx context.Context) (*database, error) {
	db, err := c.openDatabase(ctx)
	if err != nil {
		return nil, err
	}
	if err := db.ready(ctx); err != nil {
		return nil, errors.Join(db.describe(err), db.close())
	}
	return db, nil
}

// describe says in an error about the connection which database it was.
func (db *database) describe(err error) error {
	p := explain(err)
	if p.code != exitUnreachable || db.choice.private {
		return err
	}
	return &problem{
		code: p.code,
		text: fmt.Sprintf("the database %s %s", db.name, absence(err)),
		hint: "its address comes from " + db.choice.why + "; cuelight doctor looks closer",
	}
}

// nothingYet: the private database was never made, so there is nothing to look at,
// and looking is no reason to make it.
type nothingYet struct {
	*problem
	mistaken bool // somebody named a data directory that does not exist
}

func (n nothingYet) Unwrap() error { return n.problem }

// noDatabase says where there is no database yet. A data directory that somebody
// named and that does not exist is a mistake.
func (c *cli) noDatabase() error {
	data, err := c.data()
	if err != nil {
		return err
	}
	if _, err := os.Stat(data); c.dataDir != "" && errors.Is(err, fs.ErrNotExist) {
		return nothingYet{&problem{
			code: exitNotFound,
			text: "there is no database yet in " + printable(data) + ", which does not exist",
			hint: "it was named by --data-dir or CUELIGHT_DATA_DIR",
		}, true}
	}
	return nothingYet{&problem{
		code: exitNotFound,
		text: fmt.Sprintf("there is no database yet in %s", printable(data)),
		hint: "cuelight run FILE or cuelight submit FILE makes one; --data-dir names another directory",
	}, false}
}

// orNothing prints that there is nothing yet, which is an answer to commands that list.
func (c *cli) orNothing(err error) error {
	if none, ok := errors.AsType[nothingYet](err); ok && !none.mistaken {
		fmt.Fprintf(c.err, "cuelight: %s\n", none.text)
		return nil
	}
	return err
}

// withTasks is withDatabase for commands that only concern tasks which are
// there already.
func (c *cli) withTasks(ctx context.Context, do func(db *database) error) error {
	if there, err := c.isThere(); err != nil {
		return err
	} else if !there {
		return c.noDatabase()
	}
	return c.withDatabase(ctx, do)
}

// withDaemons is withDatabase for commands that are there for daemons, which have made
// the database before: one that was made by this would be another.
func (c *cli) withDaemons(ctx context.Context, do func(db *database) error) error {
	err := c.withTasks(ctx, do)
	if _, none := errors.AsType[nothingYet](err); !none {
		return err
	}
	data, err := c.data()
	if err != nil {
		return err
	}
	return &problem{
		code: exitNotFound,
		text: "there is no database yet in " + printable(data) + ", and so no daemon",
		hint: "--data-dir names that of the daemon; cuelight migrate makes one before its first start",
	}
}

// isThere reports whether there is a database to look at, rather than a
// private one that would have to be made first.
func (c *cli) isThere() (bool, error) {
	if !c.choose().private {
		return true, nil
	}
	data, err := c.data()
	return isMade(filepath.Join(data, databaseDir)), err
}

// withDatabase calls do with the database and closes it afterwards.
func (c *cli) withDatabase(ctx context.Context, do func(db *database) error) error {
	db, err := c.open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(do(db), db.close())
}

// close ends the connections and then the private server, if nobody else uses
// it.
func (db *database) close() error {
	if db.side.pool != nil {
		db.side.pool.Close()
		db.side.reserved.Close()
	}
	if db.pool != nil {
		db.pool.Close()
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.server == nil {
		return nil
	}
	return db.server.Close()
}

// keep starts the private server again when it ends, until ctx is done. It
// tells of the end, and of the new beginning with nil.
func (db *database) keep(ctx context.Context, tell func(error)) {
	if db.server == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-db.server.Done():
		}
		tell(db.server.Err())
		if !db.restart(ctx, tell) {
			return
		}
		tell(nil)
	}
}

func (db *database) restart(ctx context.Context, tell func(error)) bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		_ = db.server.Close() // why it ended was told
		next, err := postgres.Start(ctx, db.options)
		if err == nil {
			db.server = next
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		tell(err)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
}
