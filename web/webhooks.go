package web

import (
	"net/http"
	"slices"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/webhook"
	"github.com/cuelight/cuelight/store"
)

func (s *Server) webhookRoutes() []route {
	const hooks, deliveries = api + "/webhooks", api + "/deliveries"
	admin := access.Admin
	return []route{
		answered("GET", hooks, admin, s.listWebhooks),
		answered("POST", hooks, admin, s.addWebhook),
		answered("PATCH", hooks+"/{id}", admin, s.changeWebhook),
		answered("DELETE", hooks+"/{id}", admin, s.removeWebhook),
		answered("POST", hooks+"/{id}/rotate", admin, s.rotateWebhook),
		answered("POST", hooks+"/{id}/disable", admin, s.disableWebhook),
		answered("POST", hooks+"/{id}/enable", admin, s.enableWebhook),
		answered("POST", hooks+"/{id}/test", admin, s.testWebhook),
		answered("POST", hooks+"/{id}/redeliver", admin, s.redeliverDead),
		answered("GET", deliveries, admin, s.listDeliveries, "webhook_id", "status", "after", "limit"),
		answered("POST", deliveries+"/{id}/redeliver", admin, s.redeliver),
	}
}

func (s *Server) listWebhooks(_ http.ResponseWriter, r *http.Request) (answer, error) {
	all, err := s.o.Webhooks.List(r.Context())
	if err != nil {
		return answer{}, err
	}
	return ok(map[string]any{"webhooks": append([]webhook.Webhook{}, all...)})
}

func (s *Server) addWebhook(w http.ResponseWriter, r *http.Request) (answer, error) {
	var in struct {
		URL      string   `json:"url"`
		Types    []string `json:"types"`
		Cooldown *int     `json:"cooldown_s"`
	}
	if err := decode(w, r, bodyMost, false, &in); err != nil {
		return answer{}, err
	}
	reg := webhook.Registration{URL: in.URL, Types: in.Types}
	if in.Cooldown != nil {
		var err error
		if reg.Cooldown, err = cooldownOf(*in.Cooldown); err != nil {
			return answer{}, err
		}
		if reg.Cooldown == 0 {
			reg.Cooldown = -1 // none, where 0 is the default
		}
	}
	var added webhook.Webhook
	err := s.o.Store.WithAudit(r.Context(), func(in *store.Store) (e store.AuditEntry, err error) {
		if added, err = s.o.Webhooks.WithStore(in).Add(r.Context(), reg); err != nil {
			return e, err
		}
		return entry(r, "webhook_add", added.ID.String(), map[string]any{"url": redact.Source(added.URL), "types": added.Types}), nil
	})
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusCreated, body: added}, nil
}

func cooldownOf(seconds int) (time.Duration, error) {
	if seconds < 0 || seconds > 7*24*3600 {
		return 0, refuse(kindInvalid, "cooldown_s is 0 to 604800")
	}
	return time.Duration(seconds) * time.Second, nil
}

func (s *Server) changeWebhook(w http.ResponseWriter, r *http.Request) (answer, error) {
	var in struct {
		URL      *string  `json:"url"`
		Types    []string `json:"types"`
		Cooldown *int     `json:"cooldown_s"`
	}
	id, err := pathID(r)
	if err != nil {
		return answer{}, err
	}
	if err := decode(w, r, bodyMost, false, &in); err != nil {
		return answer{}, err
	}
	detail := map[string]any{}
	to := webhook.Update{Types: in.Types}
	if in.Types != nil {
		detail["types"] = in.Types
	}
	if in.URL != nil {
		if to.URL = *in.URL; to.URL == "" { // which would leave it
			return answer{}, refuse(kindInvalid, "url is empty")
		}
		detail["url"] = redact.Source(to.URL)
	}
	if in.Cooldown != nil {
		cooldown, err := cooldownOf(*in.Cooldown)
		if err != nil {
			return answer{}, err
		}
		to.Cooldown, detail["cooldown_s"] = &cooldown, *in.Cooldown
	}
	var changed webhook.Webhook
	err = s.o.Store.WithAudit(r.Context(), func(in *store.Store) (e store.AuditEntry, err error) {
		if changed, err = s.o.Webhooks.WithStore(in).Update(r.Context(), id, to); err != nil {
			return e, err
		}
		return entry(r, "webhook_change", id.String(), detail), nil
	})
	if err != nil {
		return answer{}, err
	}
	return ok(changed)
}

// onWebhook does something to one webhook or delivery, and writes its audit in the
// same transaction.
func (s *Server) onWebhook(w http.ResponseWriter, r *http.Request, action string, body any, do func(in *webhook.Webhooks, id store.ID) (any, error)) (answer, error) {
	id, err := pathID(r)
	if err != nil {
		return answer{}, err
	}
	if body == nil {
		body = &struct{}{}
	}
	if err := decode(w, r, bodyMost, true, body); err != nil {
		return answer{}, err
	}
	var out any
	err = s.o.Store.WithAudit(r.Context(), func(in *store.Store) (e store.AuditEntry, err error) {
		if out, err = do(s.o.Webhooks.WithStore(in), id); err != nil {
			return e, err
		}
		return entry(r, action, id.String(), nil), nil
	})
	if err != nil {
		return answer{}, err
	}
	if out == nil {
		return answer{status: http.StatusNoContent}, nil
	}
	return ok(out)
}

func (s *Server) removeWebhook(w http.ResponseWriter, r *http.Request) (answer, error) {
	return s.onWebhook(w, r, "webhook_remove", nil, func(hooks *webhook.Webhooks, id store.ID) (any, error) {
		return nil, hooks.Remove(r.Context(), id)
	})
}

func (s *Server) rotateWebhook(w http.ResponseWriter, r *http.Request) (answer, error) {
	var in struct {
		Overlap *int `json:"overlap_s"`
	}
	return s.onWebhook(w, r, "webhook_rotate", &in, func(hooks *webhook.Webhooks, id store.ID) (any, error) {
		var overlap time.Duration
		if in.Overlap != nil {
			if *in.Overlap < 0 || *in.Overlap > 30*24*3600 {
				return nil, refuse(kindInvalid, "overlap_s is 0 to 2592000")
			}
			if overlap = time.Duration(*in.Overlap) * time.Second; overlap == 0 {
				overlap = -1 // none, where 0 is the default
			}
		}
		return hooks.RotateSecret(r.Context(), id, overlap)
	})
}

func (s *Server) disableWebhook(w http.ResponseWriter, r *http.Request) (answer, error) {
	var in struct {
		Why string `json:"why"`
	}
	return s.onWebhook(w, r, "webhook_disable", &in, func(hooks *webhook.Webhooks, id store.ID) (any, error) {
		if err := checkText(in.Why); err != nil {
			return nil, refuse(kindRequest, "why is %v", err)
		}
		return nil, hooks.Disable(r.Context(), id, in.Why)
	})
}

func (s *Server) enableWebhook(w http.ResponseWriter, r *http.Request) (answer, error) {
	return s.onWebhook(w, r, "webhook_enable", nil, func(hooks *webhook.Webhooks, id store.ID) (any, error) {
		return nil, hooks.Enable(r.Context(), id)
	})
}

func (s *Server) testWebhook(w http.ResponseWriter, r *http.Request) (answer, error) {
	// Not in a transaction: the receiver may take its time.
	var tried webhook.PingResult
	id, err := pathID(r)
	if err == nil {
		tried, err = s.o.Webhooks.Test(r.Context(), id)
	}
	if err != nil {
		return answer{}, err
	}
	return s.onWebhook(w, r, "webhook_test", nil, func(*webhook.Webhooks, store.ID) (any, error) { return tried, nil })
}

func (s *Server) redeliverDead(w http.ResponseWriter, r *http.Request) (answer, error) {
	return s.onWebhook(w, r, "webhook_redeliver_dead", nil, func(hooks *webhook.Webhooks, id store.ID) (any, error) {
		n, err := hooks.RedeliverDead(r.Context(), id)
		return map[string]int{"deliveries": n}, err
	})
}

func (s *Server) redeliver(w http.ResponseWriter, r *http.Request) (answer, error) {
	return s.onWebhook(w, r, "webhook_redeliver", nil, func(hooks *webhook.Webhooks, id store.ID) (any, error) {
		return nil, hooks.Redeliver(r.Context(), id)
	})
}

func (s *Server) listDeliveries(_ http.ResponseWriter, r *http.Request) (answer, error) {
	p := given(r)
	f := webhook.DeliveryFilter{Webhook: p.id("webhook_id"), Status: p.text("status"), After: p.id("after")}
	limit := p.limit()
	if p.err != nil {
		return answer{}, p.err
	}
	if known := []string{"", "pending", "delivered", "dead", "suppressed"}; !slices.Contains(known, f.Status) {
		return answer{}, refuse(kindRequest, "there is no status %q of deliveries", f.Status)
	}
	f.Limit = limit + 1
	all, err := s.o.Webhooks.Deliveries(r.Context(), f)
	if err != nil {
		return answer{}, err
	}
	body := struct {
		Deliveries []webhook.Delivery `json:"deliveries"`
		Next       string             `json:"next,omitempty"`
	}{Deliveries: append([]webhook.Delivery{}, all...)}
	if len(all) > limit {
		body.Deliveries = all[:limit]
		body.Next = s.next(api+"/deliveries", p, all[limit-1].ID.String())
	}
	return answer{status: http.StatusOK, body: body, link: body.Next}, nil
}
