package main

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// choice says which database is used, and why that one.
type choice struct {
	private bool
	address string // of one that is not private; "" for what PG* say
	why     string
}

// choose applies the order that the help gives.
func (c *cli) choose() choice {
	if c.databaseURL != "" {
		why := "--database-url or CUELIGHT_DATABASE_URL"
		if c.databaseURL == "private" {
			return choice{private: true, why: why}
		}
		return choice{address: c.databaseURL, why: why}
	}
	if address := c.env.get("DATABASE_URL"); address != "" {
		return choice{address: address, why: "DATABASE_URL"}
	}
	for _, name := range []string{"PGHOST", "PGSERVICE", "PGDATABASE"} {
		if c.env.get(name) != "" {
			return choice{why: name}
		}
	}
	return choice{private: true, why: "no other database is named"}
}

// keepEvents is how long a command that works for a moment keeps events. For how long
// others are to have them is the daemons' to say, if there may be any.
func (ch choice) keepEvents() time.Duration {
	if ch.private {
		return 0 // the usual time: nobody else may ever come to delete them
	}
	return -1
}

// config reads the address of a database that is not private.
func (ch choice) config() (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(ch.address)
	if err != nil {
		// The error may quote the address, and with it the password.
		return nil, &problem{
			code: exitUsage,
			text: "the database's address cannot be read (" + ch.why + ")",
			hint: "such as postgres://user:password@host:5432/database, or host=… user=… dbname=…",
		}
	}
	return config, nil
}

// masked is an address for people: no password, no options.
func masked(config *pgxpool.Config) string {
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
