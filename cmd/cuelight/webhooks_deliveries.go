package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/internal/webhook"
	"github.com/cuelight/cuelight/store"
)

func (c *cli) webhooksDeliveriesCommand() *cobra.Command {
	var f webhook.DeliveryFilter
	cmd := &cobra.Command{
		Use:   "deliveries [WEBHOOK]",
		Short: "List deliveries, of all webhooks or of one",
		Args:  atMostOne("WEBHOOK"),
	}
	cmd.Flags().StringVar(&f.Status, "status", "",
		"only deliveries with this status: pending, delivered, dead or suppressed")
	cmd.Flags().IntVar(&f.Limit, "limit", 100, "maximum number of deliveries, newest first")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		return c.withWebhooks(ctx, webhookFlags{}, func(w ops.WebhookActions) error {
			if len(args) > 0 {
				h, err := findWebhook(ctx, w.Hooks, args[0])
				if err != nil {
					return err
				}
				f.Webhook = h.ID
			}
			all, err := w.Hooks.Deliveries(ctx, f)
			if errors.Is(err, webhook.ErrInvalid) {
				err = invalidFlag("status", f.Status, "pending, delivered, dead or suppressed")
			}
			if err != nil {
				return err
			}
			return printList(c, all, "deliveries", "DELIVERY EVENT TASK STATUS ATTEMPTS AGE RESPONSE", deliveryRow)
		})
	}
	return cmd
}

func deliveryRow(d webhook.Delivery) []string {
	response, task := usererr.Printable(d.Error), ""
	if response == "" && d.Response != 0 {
		response = fmt.Sprint(d.Response)
	}
	if !d.Task.IsZero() {
		task = shortID(d.Task)
	}
	return []string{
		d.ID.String(), d.Type, task, d.Status, fmt.Sprint(d.Attempts), age(d.CreatedAt),
		response,
	}
}

func (c *cli) webhooksRedeliverCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redeliver DELIVERY | --dead WEBHOOK",
		Short: "Repeat a delivery, or all dead deliveries of a webhook",
		Args:  atMostOne("DELIVERY"),
	}
	dead := cmd.Flags().String("dead", "", "repeat all dead deliveries of this webhook")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		if (len(args) == 0) == (*dead == "") {
			return usererr.Usagef("either the id of a delivery or --dead WEBHOOK is required")
		}
		return c.withWebhooks(ctx, webhookFlags{}, func(w ops.WebhookActions) error {
			n, err := redeliver(ctx, w, args, *dead)
			if err != nil {
				return err
			}
			deliveries := "1 delivery"
			if n != 1 {
				deliveries = fmt.Sprintf("%d deliveries", n)
			}
			return c.print(map[string]int{"redelivered": n}, "%s scheduled", deliveries)
		})
	}
	return cmd
}

// redeliver repeats the dead deliveries of a webhook, or the delivery that args name.
func redeliver(ctx context.Context, w ops.WebhookActions, args []string, dead string) (n int, err error) {
	if dead != "" {
		h, err := findWebhook(ctx, w.Hooks, dead)
		if err != nil {
			return 0, err
		}
		return w.RedeliverDead(ctx, h.ID)
	}
	id, err := store.ParseID(args[0])
	if err == nil {
		err = w.Redeliver(ctx, id)
	}
	if err != nil && (id.IsZero() || errors.Is(err, webhook.ErrNotFound)) {
		return 0, noMatchError("delivery", "id", args[0], "cuelight webhooks deliveries")
	}
	return 1, err
}
