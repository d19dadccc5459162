package web

import (
	"net/http"
	"slices"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/internal/webhook"
	"github.com/cuelight/cuelight/store"
)

const (
	maxCooldown = 7 * 24 * 3600  // seconds
	maxOverlap  = 30 * 24 * 3600 // seconds
)

func (s *Server) webhookRoutes() []route {
	const hooks, deliveries = apiPath + "/webhooks", apiPath + "/deliveries"
	admin := access.Admin
	return []route{
		jsonRoute("GET", hooks, admin, s.listWebhooks),
		jsonRoute("POST", hooks, admin, s.createWebhook),
		jsonRoute("PATCH", hooks+"/{id}", admin, s.updateWebhook),
		jsonRoute("DELETE", hooks+"/{id}", admin, s.deleteWebhook),
		jsonRoute("POST", hooks+"/{id}/rotate", admin, s.rotateWebhook),
		jsonRoute("POST", hooks+"/{id}/disable", admin, s.disableWebhook),
		jsonRoute("POST", hooks+"/{id}/enable", admin, s.enableWebhook),
		jsonRoute("POST", hooks+"/{id}/test", admin, s.testWebhook),
		jsonRoute("POST", hooks+"/{id}/redeliver", admin, s.redeliverDeadDeliveries),
		jsonRoute("GET", deliveries, admin, s.listDeliveries, "webhook_id", "status", "after", "limit"),
		jsonRoute("POST", deliveries+"/{id}/redeliver", admin, s.redeliverDelivery),
	}
}

func (s *Server) listWebhooks(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	all, err := s.opts.Webhooks.List(r.Context())
	if err != nil {
		return jsonResponse{}, err
	}
	return okResponse(map[string]any{"webhooks": append([]webhook.Webhook{}, all...)})
}

func (s *Server) createWebhook(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	var in struct {
		URL      string   `json:"url"`
		Types    []string `json:"types"`
		Cooldown *int     `json:"cooldown_s"`
	}
	if err := decode(w, r, maxBody, false, &in); err != nil {
		return jsonResponse{}, err
	}
	reg := webhook.Registration{URL: in.URL, Types: in.Types}
	if in.Cooldown != nil {
		var err error
		if reg.Cooldown, err = parseSeconds("cooldown_s", *in.Cooldown, maxCooldown); err != nil {
			return jsonResponse{}, err
		}
		if reg.Cooldown == 0 {
			reg.Cooldown = -1 // none; 0 is the default
		}
	}
	created, err := s.webhookActions().Add(r.Context(), reg)
	if err != nil {
		return jsonResponse{}, err
	}
	return jsonResponse{status: http.StatusCreated, body: created}, nil
}

// parseSeconds converts the member name of a body, a number of seconds.
func parseSeconds(name string, seconds, most int) (time.Duration, error) {
	if seconds < 0 || seconds > most {
		return 0, problem.New(problem.Invalid, "%s must be from 0 to %d", name, most)
	}
	return time.Duration(seconds) * time.Second, nil
}

func (s *Server) updateWebhook(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	var in struct {
		URL      *string  `json:"url"`
		Types    []string `json:"types"`
		Cooldown *int     `json:"cooldown_s"`
	}
	id, err := pathID(r)
	if err != nil {
		return jsonResponse{}, err
	}
	if err := decode(w, r, maxBody, false, &in); err != nil {
		return jsonResponse{}, err
	}
	update := webhook.Update{Types: in.Types}
	if in.URL != nil {
		if update.URL = *in.URL; update.URL == "" { // would leave it unchanged
			return jsonResponse{}, problem.New(problem.Invalid, "url must not be empty")
		}
	}
	if in.Cooldown != nil {
		cooldown, err := parseSeconds("cooldown_s", *in.Cooldown, maxCooldown)
		if err != nil {
			return jsonResponse{}, err
		}
		update.Cooldown = &cooldown
	}
	updated, err := s.webhookActions().Update(r.Context(), id, update)
	if err != nil {
		return jsonResponse{}, err
	}
	return okResponse(updated)
}

// webhookActions returns the actions of the principal in a request's context.
func (s *Server) webhookActions() ops.WebhookActions {
	return ops.WebhookActions{Actions: s.actions(), Hooks: s.opts.Webhooks}
}

// changeWebhook changes one webhook or delivery, whose id is in the path. It reads the request's body into body unless
// that is nil. The response is what change returns; no body if nil.
func (s *Server) changeWebhook(
	w http.ResponseWriter, r *http.Request, body any, change func(a ops.WebhookActions, id store.ID) (any, error),
) (jsonResponse, error) {
	id, err := pathID(r)
	if err != nil {
		return jsonResponse{}, err
	}
	if body == nil {
		body = &struct{}{}
	}
	if err := decode(w, r, maxBody, true, body); err != nil {
		return jsonResponse{}, err
	}
	out, err := change(s.webhookActions(), id)
	switch {
	case err != nil:
		return jsonResponse{}, err
	case out == nil:
		return jsonResponse{status: http.StatusNoContent}, nil
	}
	return okResponse(out)
}

func (s *Server) deleteWebhook(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	return s.changeWebhook(w, r, nil, func(a ops.WebhookActions, id store.ID) (any, error) {
		return nil, a.Remove(r.Context(), id)
	})
}

func (s *Server) rotateWebhook(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	var in struct {
		Overlap *int `json:"overlap_s"`
	}
	return s.changeWebhook(w, r, &in, func(a ops.WebhookActions, id store.ID) (any, error) {
		var overlap time.Duration
		if in.Overlap != nil {
			var err error
			if overlap, err = parseSeconds("overlap_s", *in.Overlap, maxOverlap); err != nil {
				return nil, err
			}
			if overlap == 0 {
				overlap = -1 // none; 0 is the default
			}
		}
		return a.RotateSecret(r.Context(), id, overlap)
	})
}

func (s *Server) disableWebhook(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	var in struct {
		Reason string `json:"reason"`
	}
	return s.changeWebhook(w, r, &in, func(a ops.WebhookActions, id store.ID) (any, error) {
		if err := checkText("reason", in.Reason); err != nil {
			return nil, err
		}
		return nil, a.Disable(r.Context(), id, in.Reason)
	})
}

func (s *Server) enableWebhook(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	return s.changeWebhook(w, r, nil, func(a ops.WebhookActions, id store.ID) (any, error) {
		return nil, a.Enable(r.Context(), id)
	})
}

func (s *Server) testWebhook(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	return s.changeWebhook(w, r, nil, func(a ops.WebhookActions, id store.ID) (any, error) {
		return a.Test(r.Context(), id)
	})
}

func (s *Server) redeliverDeadDeliveries(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	return s.changeWebhook(w, r, nil, func(a ops.WebhookActions, id store.ID) (any, error) {
		n, err := a.RedeliverDead(r.Context(), id)
		return map[string]int{"deliveries": n}, err
	})
}

func (s *Server) redeliverDelivery(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	return s.changeWebhook(w, r, nil, func(a ops.WebhookActions, id store.ID) (any, error) {
		return nil, a.Redeliver(r.Context(), id)
	})
}

func (s *Server) listDeliveries(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	p := parsedQuery(r)
	f := webhook.DeliveryFilter{Webhook: p.id("webhook_id"), Status: p.text("status"), After: p.id("after")}
	limit := p.limit()
	if p.err != nil {
		return jsonResponse{}, p.err
	}
	if !slices.Contains([]string{"", "pending", "delivered", "dead", "suppressed"}, f.Status) {
		return jsonResponse{}, problem.New(problem.InvalidRequest, "unknown delivery status %q", f.Status)
	}
	f.Limit = limit + 1
	all, err := s.opts.Webhooks.Deliveries(r.Context(), f)
	if err != nil {
		return jsonResponse{}, err
	}
	page, next := cutPage(all, limit, func(d webhook.Delivery) string { return d.ID.String() })
	return pageResponse(r, "deliveries", page, next)
}
