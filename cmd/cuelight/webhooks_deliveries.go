package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/internal/webhook"
	"github.com/cuelight/cuelight/store"
)

func (c *cli) webhooksDeliveriesCommand() *cobra.Command {
	var f webhook.DeliveryFilter
	cmd := &cobra.Command{
		Use:   "deliveries [WEBHOOK]",
		Short: "List what was delivered, is to be, or could not be",
		Args:  cobra.MaximumNArgs(1),
	}
	cmd.Flags().StringVar(&f.Status, "status", "", "pending, delivered, dead or suppressed")
	cmd.Flags().IntVar(&f.Limit, "limit", 100, "at most so many, the newest first")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		return c.withWebhooks(ctx, "", webhookOptions{}, func(w *webhook.Webhooks) (string, func() error, error) {
			if len(args) > 0 {
				h, err := findWebhook(ctx, w, args[0])
				if err != nil {
					return "", nil, err
				}
				f.Webhook = h.ID
			}
			all, err := w.Deliveries(ctx, f)
			if errors.Is(err, webhook.ErrInvalid) {
				err = usererr.Usagef("--status %s: it is pending, delivered, dead or suppressed", usererr.Printable(f.Status))
			}
			return "", func() error { return c.listDeliveries(all) }, err
		})
	}
	return cmd
}

func (c *cli) listDeliveries(all []webhook.Delivery) error {
	if len(all) == 0 && !c.json {
		fmt.Fprintln(c.err, "cuelight: no deliveries")
		return nil
	}
	t := table{to: c.out, head: []string{"DELIVERY", "EVENT", "TASK", "STATUS", "ATTEMPTS", "AGE", "ANSWER"}}
	for _, d := range all {
		if c.json {
			if err := c.writeJSON(d); err != nil {
				return err
			}
			continue
		}
		answer, task := usererr.Printable(d.Error), ""
		if answer == "" && d.Response != 0 {
			answer = fmt.Sprint(d.Response)
		}
		if !d.Task.IsZero() {
			task = shortID(d.Task)
		}
		t.add(d.ID.String(), d.Type, task, d.Status, fmt.Sprint(d.Attempts), span(time.Since(d.CreatedAt)), answer)
	}
	if c.json {
		return nil
	}
	return t.write()
}

func (c *cli) webhooksRedeliverCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redeliver DELIVERY | --dead WEBHOOK",
		Short: "Deliver again",
		Args:  cobra.MaximumNArgs(1),
	}
	dead := cmd.Flags().String("dead", "", "all that could not be delivered to this webhook")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		if (len(args) == 0) == (*dead == "") {
			return usererr.Usagef("which? name a delivery by its id, or a webhook with --dead")
		}
		return c.withWebhooks(ctx, "webhook_redeliver", webhookOptions{}, func(w *webhook.Webhooks) (string, func() error, error) {
			target, n, err := redeliver(ctx, w, args, *dead)
			return target.String(), func() error { return c.redelivered(n) }, err
		})
	}
	return cmd
}

// redeliver has one delivery made again, or all dead ones of a webhook.
func redeliver(ctx context.Context, w *webhook.Webhooks, args []string, dead string) (target store.ID, n int, err error) {
	if dead != "" {
		h, err := findWebhook(ctx, w, dead)
		if err == nil {
			n, err = w.RedeliverDead(ctx, h.ID)
		}
		return h.ID, n, err
	}
	id, wrong := store.ParseID(args[0])
	if wrong == nil {
		err = w.Redeliver(ctx, id)
	}
	if wrong != nil || errors.Is(err, webhook.ErrNotFound) {
		err = &usererr.Error{Kind: usererr.NotFound, Text: usererr.Printable(args[0]) + " is not a delivery", Hint: "cuelight webhooks deliveries lists them"}
	}
	return id, 1, err
}

func (c *cli) redelivered(n int) error {
	if c.json {
		return c.writeJSON(map[string]int{"redelivered": n})
	}
	_, err := fmt.Fprintf(c.out, "%s to be made again\n", deliveries(n))
	return err
}

func deliveries(n int) string {
	if n == 1 {
		return "1 delivery"
	}
	return fmt.Sprintf("%d deliveries", n)
}
