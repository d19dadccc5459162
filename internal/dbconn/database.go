package dbconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

// connectTimeout is the timeout of one attempt to connect, if the address sets none.
const connectTimeout = 10 * time.Second

// Options say which database and which directories a command uses.
type Options struct {
	DataDir     string // as given; empty for the default; may be the address of a bucket
	PublishDir  string // as given; empty for a directory in the data directory; may be that of a bucket
	LocalDir    string // as given; takes the place of a DataDir that is a bucket; empty for the default
	DatabaseURL string // as given; empty to choose by the environment
	// DatabaseOrigin says where DatabaseURL comes from: a flag, a variable, or a line of a file.
	DatabaseOrigin string
	NotifyURL      string      // address for the listener only; empty for that of the database
	ReadURL        string      // address of a standby for the reads of clients; empty for none
	Env            Environment // the process's environment
	Notices        io.Writer   // receives messages to the operator
}

// Database is an open database, and the private server that runs it, if there is one.
type Database struct {
	Target Target
	Name   string        // its address without secrets
	Pool   *pgxpool.Pool // for the work and for commands
	Store  *store.Store  // on Pool
	Reads  ReadPool      // empty before OpenReadPool

	NotifyConfig *pgx.ConnConfig // for the listener; nil for that of Pool

	// StandbyName is the address of the standby without secrets; empty if there is none.
	StandbyName   string
	standbyConfig *pgxpool.Config

	sessions, standbySessions sessions

	privateOptions postgres.Options
	mu             sync.Mutex
	server         *postgres.Server // nil unless private
}

// Connect starts the private server, or uses the one that another command started; any
// other database is connected to at its first use. Database.EnsureTables makes sure that the
// tables can be used.
func (o *Options) Connect(ctx context.Context) (*Database, error) {
	db := &Database{Target: o.Target()}
	config, err := o.poolConfig(ctx, db)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	cc := config.ConnConfig
	if cc.ConnectTimeout == 0 {
		cc.ConnectTimeout = connectTimeout
	}
	if cc.RuntimeParams["application_name"] == "" {
		cc.RuntimeParams["application_name"] = "cuelight"
	}
	db.Name = redactedURL(config)
	preferPrimary(cc)
	if db.NotifyConfig, err = o.notifyConfig(cc); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if err := o.configureStandby(db, cc); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	db.sessions.configure(config)
	if db.Pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	db.Store = store.New(db.Pool, store.Video())
	return db, nil
}

// poolConfig returns the configuration of the pool. A private server is started for it.
func (o *Options) poolConfig(ctx context.Context, db *Database) (*pgxpool.Config, error) {
	if !db.Target.Private {
		return db.Target.config()
	}
	if err := o.startPrivate(ctx, db); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(db.server.URL())
	if err != nil {
		return nil, fmt.Errorf("parse address of private server: %w", err)
	}
	return config, nil
}

// CheckAddresses parses the addresses of the options, and returns joined errors.
func (o *Options) CheckAddresses() (err error) {
	if t := o.Target(); !t.Private {
		_, err = t.config()
	}
	none := new(pgx.ConnConfig)
	_, notifyErr := o.notifyConfig(none)
	return errors.Join(err, notifyErr, o.configureStandby(new(Database), none))
}

// notifyConfig returns the listener's configuration if it has an address of its own.
func (o *Options) notifyConfig(pool *pgx.ConnConfig) (*pgx.ConnConfig, error) {
	if o.NotifyURL == "" {
		return nil, nil
	}
	config, err := Target{Address: o.NotifyURL, Origin: "--notify-url or CUELIGHT_NOTIFY_URL"}.config()
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

// configureStandby prepares the pool of the standby.
func (o *Options) configureStandby(db *Database, primary *pgx.ConnConfig) error {
	if o.ReadURL == "" {
		return nil
	}
	config, err := Target{Address: o.ReadURL, Origin: "--read-database-url or CUELIGHT_READ_DATABASE_URL"}.config()
	if err != nil {
		return err
	}
	cc := config.ConnConfig
	cc.ConnectTimeout = cmp.Or(cc.ConnectTimeout, connectTimeout)
	if cc.RuntimeParams["application_name"] == "" {
		cc.RuntimeParams["application_name"] = primary.RuntimeParams["application_name"]
	}
	db.standbySessions.configure(config)
	db.StandbyName, db.standbyConfig = redactedURL(config), config
	return nil
}

// EnsureTables makes sure that the tables are of this program's version. It creates or
// upgrades those of a private database, and only checks others.
func (db *Database) EnsureTables(ctx context.Context) error {
	if db.Target.Private {
		_, err := db.Migrate(ctx)
		return err
	}
	err := db.CheckTables(ctx)
	if e := ExplainSchema(err); e != nil {
		e.Text += fmt.Sprintf(": %s (%s)", db.Name, db.Target.Origin)
		return e
	}
	return err
}

// Migrate creates or upgrades the tables of the pipeline, and creates those of package operators.
func (db *Database) Migrate(ctx context.Context) (store.MigrateResult, error) {
	r, err := db.Store.Migrate(ctx)
	if err == nil {
		err = operators.Migrate(ctx, db.Pool)
	}
	return r, err
}

// CheckTables returns why this program cannot use the tables, for example [store.ErrNoSchema].
func (db *Database) CheckTables(ctx context.Context) error {
	if err := db.Store.Check(ctx); err != nil {
		return err
	}
	return operators.Check(ctx, db.Pool)
}

// WithName adds the database's name to an error about the connection to it.
func (db *Database) WithName(err error) error {
	e := Explain(err)
	_, isStorage := errors.AsType[*storage.ServiceError](err)
	if e.Kind != usererr.Unreachable || isStorage || db.Target.Private {
		return err
	}
	return &usererr.Error{
		Kind: e.Kind,
		Text: fmt.Sprintf("the database %s %s", db.Name, DescribeUnavailable(err)),
		Hint: "its address comes from " + db.Target.Origin + "; cuelight doctor checks the connection",
	}
}

// BehindPooler reports whether notifications cannot arrive: sessions are a pooler's,
// and the listener has no address of its own.
func (db *Database) BehindPooler() bool { return db.NotifyConfig == nil && db.sessions.pooled.Load() }

// Close closes the connections, and stops the private server if no other command uses it.
func (db *Database) Close() error {
	for _, pool := range []*pgxpool.Pool{db.Reads.Pool, db.Reads.Reserved, db.Reads.Standby, db.Pool} {
		if pool != nil {
			pool.Close()
		}
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.server == nil {
		return nil
	}
	return db.server.Close()
}
