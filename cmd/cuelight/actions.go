package main

import (
	"context"
	"os"
	"os/user"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/internal/profiles"
)

// actions returns the actions of the user of the command line, who may do everything:
// the database has checked the password.
func (c *cli) actions(db *dbconn.Database) ops.Actions {
	return ops.Actions{Store: db.Store, Prepare: profiles.Prepare, Authorize: func(context.Context, access.Scope) (string, error) {
		return localUser(), nil
	}}
}

// localUser returns the name of the command line's user for the audit log.
func localUser() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}
