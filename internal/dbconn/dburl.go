package dbconn

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/usererr"
)

// Target is the chosen database.
type Target struct {
	Private bool
	Address string // of a database that is not private; "" leaves it to the PG* variables
	Origin  string // where the choice comes from: a flag or a variable
}

// Target returns the chosen database. The help of the command documents the order.
func (o *Options) Target() Target {
	if o.DatabaseURL != "" {
		if o.DatabaseURL == "private" {
			return Target{Private: true, Origin: o.DatabaseOrigin}
		}
		return Target{Address: o.DatabaseURL, Origin: o.DatabaseOrigin}
	}
	if address := o.Env.Get("DATABASE_URL"); address != "" {
		return Target{Address: address, Origin: "DATABASE_URL"}
	}
	for _, name := range []string{"PGHOST", "PGSERVICE", "PGDATABASE"} {
		if o.Env.Get(name) != "" {
			return Target{Origin: name}
		}
	}
	return Target{Private: true, Origin: "no other database is configured"}
}

// EventRetention returns how long a short-lived command keeps events; negative means
// that it prunes none. Daemons decide how long a shared database keeps events. A
// private database may never have a daemon, so commands prune there, after the
// default time (0).
func (t Target) EventRetention() time.Duration {
	if t.Private {
		return 0
	}
	return -1
}

// config parses the address of a database that is not private.
func (t Target) config() (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(t.Address)
	if err != nil {
		// err may quote the address, and with it the password.
		return nil, &usererr.Error{
			Kind: usererr.Usage,
			Text: "invalid database address (" + t.Origin + ")",
			Hint: "such as postgres://user:password@host:5432/database, or host=… user=… dbname=…",
		}
	}
	return config, nil
}

// redactedURL returns the address without its password and parameters.
func redactedURL(config *pgxpool.Config) string {
	cc := config.ConnConfig
	database := url.PathEscape(cc.Database)
	if filepath.IsAbs(cc.Host) {
		return fmt.Sprintf("postgres://%s@/%s?host=%s", url.PathEscape(cc.User), database, cc.Host)
	}
	host := cc.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if cc.Port != 5432 {
		host += ":" + strconv.Itoa(int(cc.Port))
	}
	return fmt.Sprintf("postgres://%s@%s/%s", url.PathEscape(cc.User), host, database)
}
