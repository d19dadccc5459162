package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

func (c *cli) keysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Create, list and revoke API keys",
		Long: `Keys authenticate programs that use the HTTP API of cuelight serve --listen. The
scope of a key is read, submit (which includes read) or admin. A key is shown only
once, when it is created: the database stores its SHA-256.`,
	}
	c.onlySubcommands(cmd)
	cmd.AddCommand(c.keysCreateCommand(), c.keysListCommand(), c.keysRevokeCommand())
	return cmd
}

func (c *cli) keysCreateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an API key and print it",
		Args:  exactlyOne("NAME"),
	}
	scope := cmd.Flags().String("scope", access.Submit.String(), "scope of the key: read, submit or admin")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := access.ParseScope(*scope); err != nil {
			return invalidFlag("scope", *scope, "read, submit or admin")
		}
		return c.withDaemonDatabase(cmd.Context(), func(db *dbconn.Database) error {
			key, text, err := c.actions(db).CreateKey(cmd.Context(), args[0], *scope)
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
		Args:  noArguments,
	}
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.withExistingDatabase(cmd.Context(), func(db *dbconn.Database) error {
			keys, err := access.NewKeyStore(db.Store.DB()).Keys(cmd.Context())
			if err != nil {
				return err
			}
			return printList(c, keys, "keys", "KEY BEGINS SCOPE NAME CREATED USED STATE", keyRow)
		})
	}
	return cmd
}

func keyRow(k access.Key) []string {
	ago := func(t *time.Time) string {
		if t == nil {
			return "never"
		}
		return age(*t) + " ago"
	}
	state := "valid"
	if k.RevokedAt != nil {
		state = "revoked " + ago(k.RevokedAt)
	}
	return []string{
		shortID(k.ID), "cue_" + k.Prefix, k.Scope, usererr.Printable(k.Name), ago(&k.CreatedAt), ago(k.UsedAt), state,
	}
}

func (c *cli) keysRevokeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke KEY",
		Short: "Revoke an API key for ever",
		Long:  `Revoke revokes the key with the given id, end of an id, or beginning of the key.`,
		Args:  exactlyOne("KEY"),
	}
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		return c.withExistingDatabase(ctx, func(db *dbconn.Database) error {
			key, err := findKey(ctx, db.Store, args[0])
			if err == nil {
				key, err = c.actions(db).RevokeKey(ctx, key.ID)
			}
			if err != nil {
				return err
			}
			return c.print(key, "%s: revoked", usererr.Printable(key.Name))
		})
	}
	return cmd
}

// findKey finds a key by its id, the end of that, or the key's prefix.
func findKey(ctx context.Context, st *store.Store, word string) (access.Key, error) {
	keys, err := access.NewKeyStore(st.DB()).Keys(ctx)
	if err != nil {
		return access.Key{}, err
	}
	return findOne(keys, "key", word, "cuelight keys list", func(k access.Key) bool {
		return idEndsIn(k.ID, word) || strings.TrimPrefix(word, "cue_") == k.Prefix
	})
}
