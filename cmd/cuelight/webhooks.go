package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/internal/webhook"
	"github.com/cuelight/cuelight/store"
)

const webhooksHelp = `Webhooks are receivers that are told of events by HTTP, signed after the Standard
Webhooks specification. Whichever cuelight serve has the time delivers, at least
once and in order per task; a receiver that is down is tried again for three days.

An alert is sent to those who ask for its type: alert.dead,
alert.repeated_failure, alert.worker_lost, alert.listener_down, alert.disk_low, or
alert for all of them.`

func (c *cli) webhooksCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "webhooks", Short: "Register receivers of events, and see what they got", Long: webhooksHelp}
	c.onlySubcommands(cmd)
	cmd.AddCommand(
		c.webhooksAddCommand(), c.webhooksListCommand(), c.webhooksChangeCommand(), c.webhooksRotateCommand(), c.webhooksTestCommand(),
		c.webhookChange("disable", "Tell a receiver nothing for now", "disabled",
			func(ctx context.Context, w *webhook.Webhooks, id store.ID) error {
				return w.Disable(ctx, id, "by "+actor())
			}),
		c.webhookChange("enable", "Tell a receiver again, from where it was left", "enabled",
			func(ctx context.Context, w *webhook.Webhooks, id store.ID) error { return w.Enable(ctx, id) }),
		c.webhookChange("remove", "Forget a receiver, and what was to be delivered to it", "removed",
			func(ctx context.Context, w *webhook.Webhooks, id store.ID) error { return w.Remove(ctx, id) }),
		c.webhooksDeliveriesCommand(), c.webhooksRedeliverCommand(),
	)
	return cmd
}

// withWebhooks does something to the webhooks and writes down, in the same
// transaction, that it was done; nothing, where there is no action. What there is to
// show is shown after that.
func (c *cli) withWebhooks(ctx context.Context, action string, o webhookOptions, do func(w *webhook.Webhooks) (target string, show func() error, err error)) error {
	with := c.withTasks
	if action == webhookAdd {
		with = c.withDaemons
	}
	return with(ctx, func(db *dbconn.Database) error {
		var show func() error
		err := pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) (err error) {
			in := db.Store.WithTx(tx)
			var target string
			if target, show, err = do(webhooksOf(tx, in, o)); err != nil || action == "" {
				return err
			}
			return in.Audit(ctx, store.AuditEntry{Actor: actor(), Action: action, Target: target})
		})
		if err != nil {
			return err
		}
		return show()
	})
}

// findWebhook finds the one that a person means by its id or the end of it.
func findWebhook(ctx context.Context, w *webhook.Webhooks, word string) (webhook.Webhook, error) {
	all, err := w.List(ctx)
	if err != nil {
		return webhook.Webhook{}, err
	}
	all = slices.DeleteFunc(all, func(h webhook.Webhook) bool { return !idEndsIn(h.ID, word) })
	if len(all) != 1 {
		return webhook.Webhook{}, &usererr.Error{
			Kind: usererr.NotFound, Text: usererr.Printable(word) + " is not one webhook", Hint: "cuelight webhooks list lists them",
		}
	}
	return all[0], nil
}

const webhookAdd = "webhook_add"

func (c *cli) webhooksAddCommand() *cobra.Command {
	var r webhook.Registration
	cmd := &cobra.Command{
		Use:   "add URL",
		Short: "Register a receiver, and show the secret it checks signatures with",
		Long: `Add registers a receiver for what happens from now on, and shows its secret, this
once. An address that is not public is refused, at once where it is written as
numbers and else when it is called, unless --webhook-allow of this command and of
cuelight serve names its network. So is an http one, unless --http lets it be, or it
is in such a network by its numbers.`,
		Args: exactlyOne("URL"),
	}
	f := cmd.Flags()
	f.StringSliceVar(&r.Types, "type", nil, "an event to tell of, repeatable (default all but progress and alerts)")
	f.DurationVar(&r.Cooldown, "cooldown", 300*time.Second, "for how long an alert is not repeated")
	http := f.Bool("http", false, "let it have an http address")
	allow := allowFlag(cmd)
	c.jsonFlag(cmd)
	// It only fails for a flag that is not there.
	_ = cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(webhook.Types(), cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		r.URL = args[0]
		networks, err := networksOf("--webhook-allow", *allow)
		if err != nil {
			return err
		}
		if r.Cooldown <= 0 {
			r.Cooldown = -1 // its zero is the default, ours is none
		}
		o := webhookOptions{http: *http, allow: networks}
		return c.withWebhooks(ctx, webhookAdd, o, func(w *webhook.Webhooks) (string, func() error, error) {
			h, err := w.Add(ctx, r)
			if errors.Is(err, webhook.ErrInvalid) {
				err = &usererr.Error{Kind: usererr.Usage, Text: err.Error()}
			}
			return h.ID.String(), func() error { return c.showSecret(h) }, err
		})
	}
	return cmd
}

// showSecret shows a webhook with its new secret.
func (c *cli) showSecret(h webhook.Webhook) error {
	if c.json {
		return c.writeJSON(h)
	}
	fmt.Fprintf(c.err, "cuelight: webhook %s; this is the only time that its secret is shown\n", shortID(h.ID))
	_, err := fmt.Fprintln(c.out, h.Secret)
	return err
}

func (c *cli) webhooksListCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the receivers, and how they fare", Args: noArguments}
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.withWebhooks(cmd.Context(), "", webhookOptions{}, func(w *webhook.Webhooks) (string, func() error, error) {
			all, err := w.List(cmd.Context())
			return "", func() error { return c.listWebhooks(all) }, err
		})
	}
	return cmd
}

func (c *cli) listWebhooks(all []webhook.Webhook) error {
	if len(all) == 0 && !c.json {
		fmt.Fprintln(c.err, "cuelight: no webhooks")
		return nil
	}
	t := table{to: c.out, head: []string{"WEBHOOK", "URL", "EVENTS", "PENDING", "DEAD", "STATE"}}
	for _, h := range all {
		if c.json {
			if err := c.writeJSON(h); err != nil {
				return err
			}
			continue
		}
		types, state := "all but progress and alerts", "enabled"
		if len(h.Types) > 0 {
			types = strings.Join(h.Types, ", ")
		}
		if h.DisabledAt != nil {
			state = "disabled " + span(time.Since(*h.DisabledAt)) + " ago: " + usererr.Printable(h.DisabledReason)
		}
		t.add(shortID(h.ID), usererr.Printable(h.URL), types, fmt.Sprint(h.Pending), fmt.Sprint(h.Dead), state)
	}
	if c.json {
		return nil
	}
	return t.write()
}

func (c *cli) webhooksRotateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate WEBHOOK",
		Short: "Give a receiver a new secret, and show it",
		Args:  exactlyOne("WEBHOOK"),
	}
	overlap := cmd.Flags().Duration("overlap", 24*time.Hour, "for how long the old secret signs, too")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		if *overlap <= 0 {
			*overlap = -1 // its zero is the default, ours is none
		}
		return c.withWebhooks(ctx, "webhook_rotate", webhookOptions{}, func(w *webhook.Webhooks) (string, func() error, error) {
			h, err := findWebhook(ctx, w, args[0])
			if err == nil {
				h, err = w.RotateSecret(ctx, h.ID, *overlap)
			}
			return h.ID.String(), func() error { return c.showSecret(h) }, err
		})
	}
	return cmd
}

func (c *cli) webhooksTestCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test WEBHOOK",
		Short: "Send a receiver an event that says it is a test",
		Args:  exactlyOne("WEBHOOK"),
	}
	allow := allowFlag(cmd)
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		networks, err := networksOf("--webhook-allow", *allow)
		if err != nil {
			return err
		}
		return c.withTasks(ctx, func(db *dbconn.Database) error {
			w := webhooksOf(db.Pool, db.Store, webhookOptions{allow: networks})
			h, err := findWebhook(ctx, w, args[0])
			if err != nil {
				return err
			}
			a, err := w.Test(ctx, h.ID)
			if err != nil {
				return err
			}
			return c.tested(a)
		})
	}
	return cmd
}

func (c *cli) tested(a webhook.PingResult) error {
	if c.json {
		if err := c.writeJSON(a); err != nil {
			return err
		}
	} else if a.Error == "" {
		fmt.Fprintf(c.out, "delivered in %s, answer %d\n", a.Duration.Round(time.Millisecond), a.Status)
	}
	if a.Error == "" {
		return nil
	}
	if c.json {
		return quiet(exitFailure)
	}
	return &usererr.Error{Kind: usererr.Failure, Text: "not delivered: " + usererr.Printable(a.Error)}
}

// webhookChange is a command that changes one webhook.
func (c *cli) webhookChange(name, short, done string, do func(ctx context.Context, w *webhook.Webhooks, id store.ID) error) *cobra.Command {
	cmd := &cobra.Command{Use: name + " WEBHOOK", Short: short, Args: exactlyOne("WEBHOOK")}
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		return c.withWebhooks(ctx, "webhook_"+name, webhookOptions{}, func(w *webhook.Webhooks) (string, func() error, error) {
			h, err := findWebhook(ctx, w, args[0])
			if err == nil {
				err = do(ctx, w, h.ID)
			}
			return h.ID.String(), func() error { return c.changed(h, done) }, err
		})
	}
	return cmd
}

func (c *cli) changed(h webhook.Webhook, state string) error {
	if c.json {
		return c.writeJSON(map[string]any{"id": h.ID, "state": state})
	}
	_, err := fmt.Fprintf(c.out, "%s: %s\n", usererr.Printable(h.URL), state)
	return err
}

// webhookOptions are the settings of webhooks.
type webhookOptions struct {
	allow []netip.Prefix
	http  bool
}

func webhooksOf(db store.DB, st *store.Store, o webhookOptions) *webhook.Webhooks {
	return webhook.New(webhook.Options{
		DB: db, Store: st, Pipeline: st.Graph().Name(), Allow: o.allow, AllowHTTP: o.http, UserAgent: "Cuelight/" + programVersion(),
	})
}

func allowFlag(cmd *cobra.Command) *[]string {
	allow := cmd.Flags().StringSlice("webhook-allow", nil, "networks, such as 10.0.0.0/8, whose webhooks may be called although they are not public")
	setting(cmd.Flags(), "webhook-allow")
	return allow
}
