package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/internal/webhook"
	"github.com/cuelight/cuelight/store"
)

func (c *cli) webhooksDeliveriesCommand() *cobra.Command {
	var f webhook.DeliveryFilter
	cmd := &cobra.Command{
		Use:   "deliveries [WEBHOOK]",
		Short: "List deliveries, of all webhooks or of one",
		Args:  cobra.MaximumNArgs(1),
	}
	cmd.Flags().StringVar(&f.Status, "status", "",
		"only deliveries with this status: pending, delivered, dead or suppressed")
	cmd.Flags().IntVar(&f.Limit, "limit", 100, "maximum number of deliveries, newest first")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		return c.withWebhooks(ctx, webhookFlags{}, func(_ *dbconn.Database, w *webhook.Webhooks) error {
			if len(args) > 0 {
				h, err := findWebhook(ctx, w, args[0])
				if err != nil {
					return err
				}
				f.Webhook = h.ID
			}
			all, err := w.Deliveries(ctx, f)
			if errors.Is(err, webhook.ErrInvalid) {
				err = usererr.Usagef("--status %s: it must be pending, delivered, dead or suppressed", usererr.Printable(f.Status))
			}
			if err != nil {
				return err
			}
			head := []string{"DELIVERY", "EVENT", "TASK", "STATUS", "ATTEMPTS", "AGE", "RESPONSE"}
			return printList(c, all, "deliveries", head, deliveryRow)
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
		d.ID.String(), d.Type, task, d.Status, fmt.Sprint(d.Attempts), console.Duration(time.Since(d.CreatedAt)),
		response,
	}
}

func (c *cli) webhooksRedeliverCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redeliver DELIVERY | --dead WEBHOOK",
		Short: "Repeat a delivery, or all dead deliveries of a webhook",
		Args:  cobra.MaximumNArgs(1),
	}
	dead := cmd.Flags().String("dead", "", "repeat all dead deliveries of this webhook")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		if (len(args) == 0) == (*dead == "") {
			return usererr.Usagef("either the id of a delivery or --dead WEBHOOK is required")
		}
		n := 1
		err := c.withWebhooks(ctx, webhookFlags{}, func(db *dbconn.Database, w *webhook.Webhooks) error {
			return c.actions(db).ChangeWebhooks(ctx, "webhook_redeliver", w,
				func(in *webhook.Webhooks) (string, map[string]any, error) {
					if *dead == "" {
						return args[0], nil, redeliver(ctx, in, args[0])
					}
					h, err := findWebhook(ctx, in, *dead)
					if err == nil {
						n, err = in.RedeliverDead(ctx, h.ID)
					}
					return h.ID.String(), nil, err
				})
		})
		if err != nil || c.json {
			return c.jsonOr(err, map[string]int{"redelivered": n})
		}
		deliveries := "1 delivery"
		if n != 1 {
			deliveries = fmt.Sprintf("%d deliveries", n)
		}
		_, err = fmt.Fprintf(c.out, "%s scheduled\n", deliveries)
		return err
	}
	return cmd
}

func redeliver(ctx context.Context, in *webhook.Webhooks, word string) error {
	id, err := store.ParseID(word)
	if err != nil {
		err = webhook.ErrNotFound
	} else {
		err = in.Redeliver(ctx, id)
	}
	if errors.Is(err, webhook.ErrNotFound) {
		return noSingle("delivery", word, 0, "cuelight webhooks deliveries")
	}
	return err
}
