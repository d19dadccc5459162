package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/internal/webhook"
)

func (c *cli) webhooksChangeCommand() *cobra.Command {
	var to webhook.Update
	cmd := &cobra.Command{
		Use:   "change WEBHOOK",
		Short: "Give a receiver another address, other events or another cooldown",
		Long: `Change changes what is given, and leaves the rest: the secret stays, and what is to
be delivered stays. With another address it goes there, and at once. Addresses are
looked at as by cuelight webhooks add.`,
		Args: exactlyOne("WEBHOOK"),
	}
	f := cmd.Flags()
	f.StringVar(&to.URL, "url", "", "the new address")
	types := f.StringSlice("type", nil, "an event to tell of from now on, repeatable; '' for all but progress and alerts")
	cooldown := f.Duration("cooldown", 0, "for how long an alert is not repeated")
	http := f.Bool("http", false, "let it have an http address")
	allow := allowFlag(cmd)
	c.jsonFlag(cmd)
	// It only fails for a flag that is not there.
	_ = cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(webhook.Types(), cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !f.Changed("url") && !f.Changed("type") && !f.Changed("cooldown") {
			return usererr.Usagef("nothing is to be changed; say --url, --type or --cooldown")
		}
		if f.Changed("url") && to.URL == "" {
			return usererr.Usagef("--url is empty")
		}
		if f.Changed("type") {
			to.Types = append([]string{}, *types...)
		}
		if f.Changed("cooldown") {
			to.Cooldown = new(max(*cooldown, time.Duration(0)))
		}
		networks, err := networksOf("--webhook-allow", *allow)
		if err != nil {
			return err
		}
		ctx := cmd.Context()
		o := webhookOptions{http: *http, allow: networks}
		return c.withWebhooks(ctx, "webhook_change", o, func(w *webhook.Webhooks) (string, func() error, error) {
			h, err := findWebhook(ctx, w, args[0])
			if err == nil {
				h, err = w.Update(ctx, h.ID, to)
			}
			if errors.Is(err, webhook.ErrInvalid) {
				err = &usererr.Error{Kind: usererr.Usage, Text: err.Error()}
			}
			return h.ID.String(), func() error { return c.showChanged(h) }, err
		})
	}
	return cmd
}

func (c *cli) showChanged(h webhook.Webhook) error {
	if c.json {
		return c.writeJSON(h)
	}
	_, err := fmt.Fprintf(c.out, "%s: changed\n", usererr.Printable(h.URL))
	return err
}
