package main

import (
	"context"
	"fmt"
	"os"
	"os/user"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/internal/usererr"
)

// actions returns the actions of the user of the command line, who may do everything:
// the database has checked the password.
func (c *cli) actions(db *dbconn.Database) ops.Actions {
	return ops.Actions{Store: db.Store, Authorize: func(context.Context, access.Scope) (string, error) {
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

// noSingle says that a word does not name exactly one thing of a kind.
func noSingle(kind, word string, matches int, listCommand string) error {
	text := fmt.Sprintf("no %s has the id %q, or one that ends in it", kind, word)
	if matches > 1 {
		text = fmt.Sprintf("%d %ss have an id that ends in %q", matches, kind, word)
	}
	return &usererr.Error{Kind: usererr.NotFound, Text: text, Hint: listCommand + " lists the ids"}
}
