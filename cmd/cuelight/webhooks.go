package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/internal/webhook"
	"github.com/cuelight/cuelight/store"
)

const webhooksHelp = `Webhooks receive events by HTTP, signed after the Standard Webhooks specification.
Any cuelight serve delivers them: at least once, and in order for each task. It
retries a delivery for three days.

Alerts are sent to webhooks that subscribe to their type: alert.dead,
alert.repeated_failure, alert.worker_lost, alert.listener_down, alert.disk_low, or
alert for all of them.`

func (c *cli) webhooksCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "webhooks", Short: "Manage webhooks and their deliveries", Long: webhooksHelp}
	c.onlySubcommands(cmd)
	cmd.AddCommand(
		c.webhooksAddCommand(), c.webhooksListCommand(), c.webhooksChangeCommand(), c.webhooksRotateCommand(),
		c.webhooksTestCommand(),
		c.webhookStateCommand("disable", "Stop deliveries to a webhook", "disabled",
			func(ctx context.Context, in *webhook.Webhooks, id store.ID) error {
				return in.Disable(ctx, id, "by "+localUser())
			}),
		c.webhookStateCommand("enable", "Resume deliveries to a webhook where they stopped", "enabled",
			func(ctx context.Context, in *webhook.Webhooks, id store.ID) error { return in.Enable(ctx, id) }),
		c.webhookStateCommand("remove", "Delete a webhook and its deliveries", "removed",
			func(ctx context.Context, in *webhook.Webhooks, id store.ID) error { return in.Remove(ctx, id) }),
		c.webhooksDeliveriesCommand(), c.webhooksRedeliverCommand(),
	)
	return cmd
}

// webhookFlags are the addresses that a webhook may have.
type webhookFlags struct {
	allow *[]string
	http  *bool
}

// options returns the options of the webhooks; the zero webhookFlags set none.
func (f webhookFlags) options(db *dbconn.Database) (webhook.Options, error) {
	o := webhook.Options{
		DB: db.Pool, Store: db.Store, Pipeline: db.Store.Graph().Name(), UserAgent: "Cuelight/" + programVersion(),
	}
	var err error
	if f.allow != nil {
		o.Allow, err = parseNetworks("--webhook-allow", *f.allow)
	}
	o.AllowHTTP = f.http != nil && *f.http
	return o, err
}

func (f webhookFlags) check() error {
	_, err := parseNetworks("--webhook-allow", *f.allow)
	return err
}

// withWebhooks calls do with the webhooks of the database.
func (c *cli) withWebhooks(
	ctx context.Context, f webhookFlags, do func(db *dbconn.Database, w *webhook.Webhooks) error,
) error {
	return c.withTasks(ctx, func(db *dbconn.Database) error {
		o, err := f.options(db)
		if err != nil {
			return err
		}
		return do(db, webhook.New(o))
	})
}

// changeWebhook finds the webhook that a word means, and changes it with an entry in the
// audit log.
func (c *cli) changeWebhook(
	ctx context.Context, action string, f webhookFlags, word string,
	do func(in *webhook.Webhooks, h webhook.Webhook) (webhook.Webhook, map[string]any, error),
) (h webhook.Webhook, err error) {
	err = c.withWebhooks(ctx, f, func(db *dbconn.Database, w *webhook.Webhooks) error {
		return c.actions(db).ChangeWebhooks(ctx, action, w,
			func(in *webhook.Webhooks) (target string, detail map[string]any, err error) {
				if h, err = findWebhook(ctx, in, word); err != nil {
					return "", nil, err
				}
				target = h.ID.String()
				h, detail, err = do(in, h)
				return target, detail, explainWebhook(err)
			})
	})
	return h, err
}

func explainWebhook(err error) error {
	if errors.Is(err, webhook.ErrInvalid) {
		return &usererr.Error{Kind: usererr.Usage, Text: err.Error()}
	}
	return err
}

// findWebhook finds a webhook by its id or the end of it.
func findWebhook(ctx context.Context, w *webhook.Webhooks, word string) (webhook.Webhook, error) {
	all, err := w.List(ctx)
	if err != nil {
		return webhook.Webhook{}, err
	}
	all = slices.DeleteFunc(all, func(h webhook.Webhook) bool { return !idEndsIn(h.ID, word) })
	if len(all) != 1 {
		return webhook.Webhook{}, noSingle("webhook", word, len(all), "cuelight webhooks list")
	}
	return all[0], nil
}

func (c *cli) webhooksAddCommand() *cobra.Command {
	var r webhook.Registration
	cmd := &cobra.Command{
		Use:   "add URL",
		Short: "Add a webhook and print its secret",
		Long: `Add adds a webhook for events from now on, and prints the secret that signs them.
The secret is shown only once.

An address that is not public is refused: at once if it is numeric, otherwise at
each delivery. --webhook-allow permits networks, and must be set for cuelight serve
too. An http address is refused unless --http permits it, or it is numeric and in a
permitted network.`,
		Args: exactlyOne("URL"),
	}
	f := cmd.Flags()
	f.StringSliceVar(&r.Types, "type", nil, "event type to deliver; repeatable (default all except progress and alerts)")
	f.DurationVar(&r.Cooldown, "cooldown", 300*time.Second, "how long an alert is not repeated")
	flags := addWebhookFlags(cmd)
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		if err := flags.check(); err != nil {
			return err
		}
		r.URL = args[0]
		if r.Cooldown <= 0 {
			r.Cooldown = -1 // 0 is the default
		}
		var h webhook.Webhook
		err := c.withDaemons(ctx, func(db *dbconn.Database) error {
			o, err := flags.options(db)
			if err != nil {
				return err
			}
			return c.actions(db).ChangeWebhooks(ctx, "webhook_add", webhook.New(o),
				func(in *webhook.Webhooks) (string, map[string]any, error) {
					var err error
					h, err = in.Add(ctx, r)
					return h.ID.String(), map[string]any{"url": redact.Source(h.URL), "types": h.Types}, explainWebhook(err)
				})
		})
		if err != nil {
			return err
		}
		return c.printSecret(h)
	}
	return cmd
}

// addWebhookFlags adds the flags of commands that set a webhook's address.
func addWebhookFlags(cmd *cobra.Command) webhookFlags {
	// It only fails for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(webhook.Types(), cobra.ShellCompDirectiveNoFileComp))
	return webhookFlags{allow: allowFlag(cmd), http: cmd.Flags().Bool("http", false, "allow an http address")}
}

func allowFlag(cmd *cobra.Command) *[]string {
	allow := cmd.Flags().StringSlice("webhook-allow", nil,
		"network that is not public and may have webhooks, such as 10.0.0.0/8; repeatable")
	setting(cmd.Flags(), "webhook-allow")
	return allow
}

// printSecret prints a webhook's new secret.
func (c *cli) printSecret(h webhook.Webhook) error {
	if c.json {
		return c.writeJSON(h)
	}
	fmt.Fprintf(c.err, "cuelight: webhook %s; its secret is shown only once\n", shortID(h.ID))
	_, err := fmt.Fprintln(c.out, h.Secret)
	return err
}

func (c *cli) webhooksListCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List webhooks and their status", Args: noArguments}
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.withWebhooks(cmd.Context(), webhookFlags{}, func(_ *dbconn.Database, w *webhook.Webhooks) error {
			all, err := w.List(cmd.Context())
			if err != nil {
				return err
			}
			return printList(c, all, "webhooks", []string{"WEBHOOK", "URL", "EVENTS", "PENDING", "DEAD", "STATE"}, webhookRow)
		})
	}
	return cmd
}

func webhookRow(h webhook.Webhook) []string {
	types, state := "all except progress and alerts", "enabled"
	if len(h.Types) > 0 {
		types = strings.Join(h.Types, ", ")
	}
	if h.DisabledAt != nil {
		state = "disabled " + console.Duration(time.Since(*h.DisabledAt)) + " ago: " + usererr.Printable(h.DisabledReason)
	}
	return []string{shortID(h.ID), usererr.Printable(h.URL), types, fmt.Sprint(h.Pending), fmt.Sprint(h.Dead), state}
}

func (c *cli) webhooksChangeCommand() *cobra.Command {
	var to webhook.Update
	cmd := &cobra.Command{
		Use:   "change WEBHOOK",
		Short: "Change a webhook's address, event types or cooldown",
		Long: `Change sets what the flags name. Everything else stays, including the secret and
the pending deliveries, which go to a new address at once. Addresses are checked as
by cuelight webhooks add.`,
		Args: exactlyOne("WEBHOOK"),
	}
	f := cmd.Flags()
	f.StringVar(&to.URL, "url", "", "the new address")
	types := f.StringSlice("type", nil,
		"event type to deliver from now on; repeatable, '' for all except progress and alerts")
	cooldown := f.Duration("cooldown", 0, "how long an alert is not repeated")
	flags := addWebhookFlags(cmd)
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := flags.check(); err != nil {
			return err
		}
		detail := map[string]any{}
		if f.Changed("url") {
			if to.URL == "" {
				return usererr.Usagef("--url is empty")
			}
			detail["url"] = redact.Source(to.URL)
		}
		if f.Changed("type") {
			to.Types = append([]string{}, *types...)
			detail["types"] = to.Types
		}
		if f.Changed("cooldown") {
			to.Cooldown = new(max(*cooldown, time.Duration(0)))
			detail["cooldown_s"] = to.Cooldown.Seconds()
		}
		if len(detail) == 0 {
			return usererr.Usagef("nothing to change: use --url, --type or --cooldown")
		}
		ctx := cmd.Context()
		h, err := c.changeWebhook(ctx, "webhook_change", flags, args[0],
			func(in *webhook.Webhooks, h webhook.Webhook) (webhook.Webhook, map[string]any, error) {
				h, err := in.Update(ctx, h.ID, to)
				return h, detail, err
			})
		if err != nil || c.json {
			return c.jsonOr(err, h)
		}
		_, err = fmt.Fprintf(c.out, "%s: changed\n", usererr.Printable(h.URL))
		return err
	}
	return cmd
}

func (c *cli) webhooksRotateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate WEBHOOK",
		Short: "Create a new secret for a webhook and print it",
		Args:  exactlyOne("WEBHOOK"),
	}
	overlap := cmd.Flags().Duration("overlap", 24*time.Hour, "how long the old secret signs as well")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		if *overlap <= 0 {
			*overlap = -1 // 0 is the default
		}
		h, err := c.changeWebhook(ctx, "webhook_rotate", webhookFlags{}, args[0],
			func(in *webhook.Webhooks, h webhook.Webhook) (webhook.Webhook, map[string]any, error) {
				h, err := in.RotateSecret(ctx, h.ID, *overlap)
				return h, nil, err
			})
		if err != nil {
			return err
		}
		return c.printSecret(h)
	}
	return cmd
}

// webhookStateCommand returns a command that changes a webhook and prints its new state.
func (c *cli) webhookStateCommand(
	name, short, state string, do func(ctx context.Context, in *webhook.Webhooks, id store.ID) error,
) *cobra.Command {
	cmd := &cobra.Command{Use: name + " WEBHOOK", Short: short, Args: exactlyOne("WEBHOOK")}
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		h, err := c.changeWebhook(ctx, "webhook_"+name, webhookFlags{}, args[0],
			func(in *webhook.Webhooks, h webhook.Webhook) (webhook.Webhook, map[string]any, error) {
				return h, nil, do(ctx, in, h.ID)
			})
		if err != nil || c.json {
			return c.jsonOr(err, map[string]any{"id": h.ID, "state": state})
		}
		_, err = fmt.Fprintf(c.out, "%s: %s\n", usererr.Printable(h.URL), state)
		return err
	}
	return cmd
}

func (c *cli) webhooksTestCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test WEBHOOK",
		Short: "Send a test event to a webhook",
		Args:  exactlyOne("WEBHOOK"),
	}
	flags := webhookFlags{allow: allowFlag(cmd)}
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		if err := flags.check(); err != nil {
			return err
		}
		return c.withWebhooks(ctx, flags, func(_ *dbconn.Database, w *webhook.Webhooks) error {
			h, err := findWebhook(ctx, w, args[0])
			if err != nil {
				return err
			}
			r, err := w.Test(ctx, h.ID)
			if err != nil {
				return err
			}
			return c.printPing(r)
		})
	}
	return cmd
}

func (c *cli) printPing(r webhook.PingResult) error {
	switch {
	case c.json:
		if err := c.writeJSON(r); err != nil || r.Error == "" {
			return err
		}
		return exitStatus(exitFailure)
	case r.Error != "":
		return &usererr.Error{Text: "not delivered: " + usererr.Printable(r.Error)}
	}
	_, err := fmt.Fprintf(c.out, "delivered in %s, response %d\n", r.Duration.Round(time.Millisecond), r.Status)
	return err
}
