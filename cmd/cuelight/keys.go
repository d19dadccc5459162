package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

func (c *cli) keysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Make, list and revoke keys for the HTTP API",
		Long: `Keys are for programs that use the HTTP API of cuelight serve --listen. A key may
read, submit (and read), or administer, as its --scope says. It is shown once, when
it is made: the database keeps only its SHA-256.`,
	}
	c.onlySubcommands(cmd)
	cmd.AddCommand(c.keysCreateCommand(), c.keysListCommand(), c.keysRevokeCommand())
	return cmd
}

func (c *cli) keysCreateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a key, and show it",
		Args:  exactlyOne("NAME"),
	}
	scope := cmd.Flags().String("scope", store.ScopeSubmit, "what it is for: read, submit or admin")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		switch *scope {
		case store.ScopeRead, store.ScopeSubmit, store.ScopeAdmin:
		default:
			return usererr.Usagef("--scope %s: it is read, submit or admin", usererr.Printable(*scope))
		}
		return c.withDaemons(ctx, func(db *dbconn.Database) error {
			var key store.Key
			var text string
			err := db.Store.WithAudit(ctx, func(in *store.Store) (e store.AuditEntry, err error) {
				key, text, err = in.CreateKey(ctx, args[0], *scope)
				return store.AuditEntry{Actor: actor(), Action: "key_create", Target: key.ID.String()}, err
			})
			if err != nil {
				return err
			}
			if c.json {
				return c.writeJSON(struct {
					store.Key
					Text string `json:"key"`
				}{key, text})
			}
			fmt.Fprintln(c.err, "cuelight: this is the only time that the key is shown")
			_, err = fmt.Fprintln(c.out, text)
			return err
		})
	}
	return cmd
}

func (c *cli) keysListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the keys, without what is secret of them",
		Args:  noArguments,
	}
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.withTasks(cmd.Context(), func(db *dbconn.Database) error {
			keys, err := db.Store.Keys(cmd.Context())
			if err != nil {
				return err
			}
			return c.listKeys(keys)
		})
	}
	return cmd
}

func (c *cli) listKeys(keys []store.Key) error {
	if len(keys) == 0 && !c.json {
		fmt.Fprintln(c.err, "cuelight: no keys")
		return nil
	}
	ago := func(t *time.Time) string {
		if t == nil {
			return "never"
		}
		return span(time.Since(*t)) + " ago"
	}
	t := table{to: c.out, head: []string{"KEY", "BEGINS", "SCOPE", "NAME", "MADE", "USED", "STATE"}}
	for _, k := range keys {
		if c.json {
			if err := c.writeJSON(k); err != nil {
				return err
			}
			continue
		}
		state := "valid"
		if k.RevokedAt != nil {
			state = "revoked " + ago(k.RevokedAt)
		}
		t.add(shortID(k.ID), "cue_"+k.Prefix, k.Scope, usererr.Printable(k.Name), ago(&k.CreatedAt), ago(k.UsedAt), state)
	}
	if c.json {
		return nil
	}
	return t.write()
}

func (c *cli) keysRevokeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke KEY",
		Short: "End a key's validity, for good",
		Long:  `Revoke ends the validity of a key, named by its id, the end of that, or its beginning.`,
		Args:  exactlyOne("KEY"),
	}
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		return c.withTasks(ctx, func(db *dbconn.Database) error {
			key, err := findKey(ctx, db.Store, args[0])
			if err != nil {
				return err
			}
			err = c.audited(ctx, db.Store, "key_revoke", key.ID.String(), nil, func(in *store.Store) (err error) {
				key, err = in.RevokeKey(ctx, key.ID)
				return err
			})
			if err != nil {
				return err
			}
			if c.json {
				return c.writeJSON(key)
			}
			_, err = fmt.Fprintf(c.out, "%s: revoked\n", usererr.Printable(key.Name))
			return err
		})
	}
	return cmd
}

// findKey finds the one key that a person means.
func findKey(ctx context.Context, st *store.Store, word string) (store.Key, error) {
	keys, err := st.Keys(ctx)
	if err != nil {
		return store.Key{}, err
	}
	var found []store.Key
	for _, k := range keys {
		if idEndsIn(k.ID, word) || strings.TrimPrefix(word, "cue_") == k.Prefix {
			found = append(found, k)
		}
	}
	if len(found) != 1 {
		return store.Key{}, &usererr.Error{
			Kind: usererr.NotFound, Text: fmt.Sprintf("%s is not one key", usererr.Printable(word)), Hint: "cuelight keys list lists them",
		}
	}
	return found[0], nil
}
