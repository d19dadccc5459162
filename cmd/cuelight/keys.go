package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

func (c *cli) keysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Create, list, disable and revoke API keys",
		Long: `Keys authenticate programs that use the HTTP API of cuelight serve --listen. The
scope of a key is read, submit (which includes read), work (for a worker without a
database, and for nothing else) or admin. A key is shown only once, when it is
created: the database stores its SHA-256.`,
	}
	c.onlySubcommands(cmd)
	cmd.AddCommand(c.keysCreateCommand(), c.keysListCommand(),
		c.keyChangeCommand(disableKey), c.keyChangeCommand(enableKey), c.keyChangeCommand(revokeKey))
	return cmd
}

func (c *cli) keysCreateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an API key and print it",
		Args:  exactlyOne("NAME"),
	}
	scope := cmd.Flags().String("scope", access.Submit.String(), "scope of the key: "+access.Scopes)
	labels := cmd.Flags().StringArray("label", nil,
		"label that workers with a key of the scope work may offer, repeatable; by default any")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := access.ParseScope(*scope); err != nil {
			return invalidFlag("scope", *scope, access.Scopes)
		}
		return c.withDaemonDatabase(cmd.Context(), func(db *dbconn.Database) error {
			key, text, err := c.actions(db).CreateKey(cmd.Context(), args[0], *scope, *labels...)
			if err != nil {
				return err
			}
			if !c.json {
				fmt.Fprintln(c.err, "cuelight: the key is shown only once")
			}
			return c.print(struct {
				access.Key
				Text string `json:"key"`
			}{key, text}, "%s", text)
		})
	}
	return cmd
}

func (c *cli) keysListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List API keys (secrets are not shown)",
		Long: `List lists API keys without their secrets. The state of a key of the scope work is
that of the newest worker that registered with it, or offline without a live one.`,
		Args: noArguments,
	}
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.withExistingDatabase(cmd.Context(), func(db *dbconn.Database) error {
			keys, err := report.New(db.Store.DB(), db.Store.Graph()).Keys(cmd.Context())
			if err != nil {
				return err
			}
			return printList(c, keys, "keys", "KEY BEGINS SCOPE NAME CREATED USED STATE", keyRow)
		})
	}
	return cmd
}

func keyRow(k report.Key) []string {
	ago := func(t *time.Time) string {
		if t == nil {
			return "never"
		}
		return age(*t) + " ago"
	}
	state := k.State
	switch {
	case k.RevokedAt != nil:
		state += " " + ago(k.RevokedAt)
	case k.DisabledAt != nil:
		state += " " + ago(k.DisabledAt)
	case k.WorkerName != "":
		state += ", " + usererr.Printable(k.WorkerName)
	}
	return []string{
		shortID(k.ID), "cue_" + k.Prefix, k.Scope, usererr.Printable(k.Name), ago(&k.CreatedAt), ago(k.UsedAt), state,
	}
}

// keyChange is a command that changes one key.
type keyChange struct {
	verb, short, long string
	done              string
	do                func(ops.Actions, context.Context, store.ID) (access.Key, error)
}

const keyArgument = `KEY is the name of a key
that is not revoked, the id of one, the end of the id, or the beginning of the key.`

var (
	disableKey = keyChange{
		"disable", "Refuse an API key until it is enabled",
		`Disable refuses a key from now on, until cuelight keys enable. Workers that have
registered with it are stopped, and their claims released. ` + keyArgument,
		"disabled", ops.Actions.DisableKey,
	}
	enableKey = keyChange{
		"enable", "Accept a disabled API key again", "Enable accepts a disabled key again. " + keyArgument,
		"enabled", ops.Actions.EnableKey,
	}
	revokeKey = keyChange{
		"revoke", "Revoke an API key for ever",
		`Revoke refuses a key from now on, for ever. Workers that have registered with it are
stopped, and their claims released. ` + keyArgument,
		"revoked", ops.Actions.RevokeKey,
	}
)

func (c *cli) keyChangeCommand(k keyChange) *cobra.Command {
	cmd := &cobra.Command{Use: k.verb + " KEY", Short: k.short, Long: k.long, Args: exactlyOne("KEY")}
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		return c.withExistingDatabase(ctx, func(db *dbconn.Database) error {
			key, err := findKey(ctx, db.Store, args[0])
			if err == nil {
				key, err = k.do(c.actions(db), ctx, key.ID)
			}
			if err != nil {
				return err
			}
			return c.print(key, "%s: %s", usererr.Printable(key.Name), k.done)
		})
	}
	return cmd
}

// findKey finds a key by its name, its id, the end of that, or the key's prefix. The names of revoked
// keys may have been given again.
func findKey(ctx context.Context, st *store.Store, word string) (access.Key, error) {
	keys, err := access.NewKeyStore(st.DB()).Keys(ctx)
	if err != nil {
		return access.Key{}, err
	}
	return namedKind[access.Key]{
		kind: "key", identifier: "name or id", listCommand: "cuelight keys list",
		matches: func(k access.Key, word string) bool {
			return k.Name == word && k.RevokedAt == nil || idEndsIn(k.ID, word) || strings.TrimPrefix(word, "cue_") == k.Prefix
		},
		describe: func(k access.Key) string {
			return fmt.Sprintf("%s (%s, scope %s, created %s ago)", shortID(k.ID), usererr.Printable(k.Name), k.Scope, age(k.CreatedAt))
		},
	}.find(keys, word)
}
