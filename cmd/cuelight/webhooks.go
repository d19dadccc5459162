package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/internal/webhook"
	"github.com/cuelight/cuelight/store"
)

const webhooksHelp = `Webhooks receive events by HTTP, signed after the Standard Webhooks specification.
Any cuelight serve delivers them: at least once, and in order for each task. It
retries a delivery for three days.

Alerts are sent to webhooks that subscribe to their type: alert.dead,
alert.repeated_failure, alert.worker_lost, alert.listener_down, alert.disk_low,
alert.worker_disabled, or alert for all of them.`

func (c *cli) webhooksCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "webhooks", Short: "Manage webhooks and their deliveries", Long: webhooksHelp}
	c.onlySubcommands(cmd)
	cmd.AddCommand(
		c.webhooksAddCommand(), c.webhooksListCommand(), c.webhooksChangeCommand(), c.webhooksRotateCommand(),
		c.webhooksTestCommand(),
		c.webhookStateCommand("disable", "Stop deliveries to a webhook", "disabled",
			func(ctx context.Context, w ops.WebhookActions, id store.ID) error {
				return w.Disable(ctx, id, "by "+localUser())
			}),
		c.webhookStateCommand("enable", "Resume deliveries to a webhook where they stopped", "enabled",
			func(ctx context.Context, w ops.WebhookActions, id store.ID) error { return w.Enable(ctx, id) }),
		c.webhookStateCommand("remove", "Delete a webhook and its deliveries", "removed",
			func(ctx context.Context, w ops.WebhookActions, id store.ID) error { return w.Remove(ctx, id) }),
		c.webhooksDeliveriesCommand(), c.webhooksRedeliverCommand(),
	)
	return cmd
}

// webhookFlags are the flags that say which addresses a webhook may have.
type webhookFlags struct {
	allow []netip.Prefix
	http  bool
}

// add adds the flags to a command, before the flags that are no settings.
func (f *webhookFlags) add(cmd *cobra.Command) {
	webhookAllowFlag(cmd.Flags(), &f.allow)
	cmd.Flags().BoolVar(&f.http, "http", false, "allow an http address")
}

func webhookAllowFlag(f *pflag.FlagSet, allow *[]netip.Prefix) {
	f.Var((*networks)(allow), "webhook-allow",
		"network that is not public and may have webhooks, such as 10.0.0.0/8; repeatable")
	bindEnvironment(f)
}

// withWebhooks calls do with the actions on the database's webhooks.
func (c *cli) withWebhooks(ctx context.Context, f webhookFlags, do func(w ops.WebhookActions) error) error {
	return c.withDaemonDatabase(ctx, func(db *dbconn.Database) error {
		err := do(ops.WebhookActions{Actions: c.actions(db), Hooks: webhook.New(webhook.Options{
			DB: db.Pool, Store: db.Store, Graph: db.Store.Graph(), UserAgent: "Cuelight/" + programVersion(),
			Allow: f.allow, AllowHTTP: f.http,
		})})
		if errors.Is(err, webhook.ErrInvalid) {
			return &usererr.Error{Kind: usererr.Usage, Text: err.Error()}
		}
		return err
	})
}

// withWebhook is withWebhooks with the webhook that a word names.
func (c *cli) withWebhook(
	ctx context.Context, f webhookFlags, word string, do func(w ops.WebhookActions, h webhook.Webhook) error,
) error {
	return c.withWebhooks(ctx, f, func(w ops.WebhookActions) error {
		h, err := findWebhook(ctx, w.Hooks, word)
		if err == nil {
			err = do(w, h)
		}
		return err
	})
}

// findWebhook finds a webhook by its id or the end of it.
func findWebhook(ctx context.Context, w *webhook.Webhooks, word string) (h webhook.Webhook, err error) {
	all, err := w.List(ctx)
	if err != nil {
		return h, err
	}
	return namedKind[webhook.Webhook]{
		kind: "webhook", identifier: "id", listCommand: "cuelight webhooks list",
		matches:  func(h webhook.Webhook, word string) bool { return idEndsIn(h.ID, word) },
		describe: func(h webhook.Webhook) string { return h.ID.String() },
	}.find(all, word)
}

func (c *cli) webhooksListCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List webhooks and their status", Args: noArguments}
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.withWebhooks(cmd.Context(), webhookFlags{}, func(w ops.WebhookActions) error {
			all, err := w.Hooks.List(cmd.Context())
			if err != nil {
				return err
			}
			return printList(c, all, "webhooks", "WEBHOOK URL FORMAT EVENTS PENDING DEAD STATE", webhookRow)
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
		state = "disabled " + age(*h.DisabledAt) + " ago: " + usererr.Printable(h.DisabledReason)
	}
	return []string{
		shortID(h.ID), usererr.Printable(h.URL), usererr.Printable(h.Format), types, fmt.Sprint(h.Pending), fmt.Sprint(h.Dead), state,
	}
}

func (c *cli) webhooksAddCommand() *cobra.Command {
	var s webhook.Settings
	var flags webhookFlags
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
	flags.add(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&s.Types, "type", nil, "event type to deliver; repeatable (default all except progress and alerts)")
	s.Cooldown = f.Duration("cooldown", 300*time.Second, "how long an alert is not repeated")
	f.StringVar(&s.Format, "format", webhook.FormatCuelight,
		"cuelight for a program, slack or discord for a chat, which by default gets all alerts")
	c.jsonFlag(cmd)
	completeWith(cmd, "type", webhook.Types())
	completeWith(cmd, "format", webhook.Formats())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s.URL = args[0]
		return c.withWebhooks(cmd.Context(), flags, func(w ops.WebhookActions) error {
			h, err := w.Add(cmd.Context(), s)
			return c.printSecret(h, err)
		})
	}
	return cmd
}

// printSecret prints a webhook's new secret.
func (c *cli) printSecret(h webhook.Webhook, err error) error {
	if err != nil {
		return err
	}
	if !c.json {
		fmt.Fprintf(c.err, "cuelight: webhook %s; its secret is shown only once\n", shortID(h.ID))
	}
	return c.print(h, "%s", h.Secret)
}

const changeHelp = `Change sets what the flags name. Everything else stays, including the secret and
the pending deliveries, which go to a new address at once. Addresses are checked as
by cuelight webhooks add.`

func (c *cli) webhooksChangeCommand() *cobra.Command {
	var flags webhookFlags
	cmd := &cobra.Command{
		Use:   "change WEBHOOK",
		Short: "Change a webhook's address, event types, format or cooldown",
		Long:  changeHelp,
		Args:  exactlyOne("WEBHOOK"),
	}
	flags.add(cmd)
	f := cmd.Flags()
	url := f.String("url", "", "the new address")
	types := f.StringSlice("type", nil,
		"event type to deliver from now on; repeatable, '' for all except progress and alerts")
	cooldown := f.Duration("cooldown", 0, "how long an alert is not repeated")
	format := f.String("format", "", "format of the bodies: cuelight, slack or discord")
	c.jsonFlag(cmd)
	completeWith(cmd, "type", webhook.Types())
	completeWith(cmd, "format", webhook.Formats())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		to := webhook.Settings{URL: *url, Format: *format}
		if f.Changed("type") {
			to.Types = append([]string{}, *types...)
		}
		if f.Changed("cooldown") {
			to.Cooldown = new(max(*cooldown, 0))
		}
		switch {
		case f.Changed("url") && *url == "":
			return usererr.Usagef("--url is empty")
		case to.URL == "" && to.Types == nil && to.Cooldown == nil && to.Format == "":
			return usererr.Usagef("nothing to change: use --url, --type, --format or --cooldown")
		}
		return c.withWebhook(cmd.Context(), flags, args[0], func(w ops.WebhookActions, h webhook.Webhook) error {
			h, err := w.Update(cmd.Context(), h.ID, to)
			if err != nil {
				return err
			}
			return c.print(h, "%s: changed", usererr.Printable(h.URL))
		})
	}
	return cmd
}

func (c *cli) webhooksRotateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate WEBHOOK",
		Short: "Create a new secret for a webhook and print it",
		Args:  exactlyOne("WEBHOOK"),
	}
	overlap := cmd.Flags().Duration("overlap", webhook.DefaultOverlap, "how long the old secret signs as well")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.withWebhook(cmd.Context(), webhookFlags{}, args[0], func(w ops.WebhookActions, h webhook.Webhook) error {
			h, err := w.RotateSecret(cmd.Context(), h.ID, *overlap)
			return c.printSecret(h, err)
		})
	}
	return cmd
}

// webhookStateCommand returns a command that changes a webhook and prints its new state.
func (c *cli) webhookStateCommand(
	name, short, state string, do func(ctx context.Context, w ops.WebhookActions, id store.ID) error,
) *cobra.Command {
	cmd := &cobra.Command{Use: name + " WEBHOOK", Short: short, Args: exactlyOne("WEBHOOK")}
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.withWebhook(cmd.Context(), webhookFlags{}, args[0], func(w ops.WebhookActions, h webhook.Webhook) error {
			if err := do(cmd.Context(), w, h.ID); err != nil {
				return err
			}
			return c.print(map[string]any{"id": h.ID, "state": state}, "%s: %s", usererr.Printable(h.URL), state)
		})
	}
	return cmd
}

func (c *cli) webhooksTestCommand() *cobra.Command {
	var flags webhookFlags
	cmd := &cobra.Command{
		Use:   "test WEBHOOK",
		Short: "Send a test event to a webhook",
		Args:  exactlyOne("WEBHOOK"),
	}
	webhookAllowFlag(cmd.Flags(), &flags.allow)
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.withWebhook(cmd.Context(), flags, args[0], func(w ops.WebhookActions, h webhook.Webhook) error {
			r, err := w.Test(cmd.Context(), h.ID)
			switch {
			case err != nil:
				return err
			case r.Error == "":
				return c.print(r, "delivered in %s, response %d", r.Duration.Round(time.Millisecond), r.Status)
			case c.json:
				return errors.Join(c.writeJSON(r), exitStatus(exitFailure))
			}
			return &usererr.Error{Text: "not delivered: " + usererr.Printable(r.Error)}
		})
	}
	return cmd
}
