package web

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/internal/webhook"
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
		jsonRoute("DELETE", hooks+"/{id}", admin, withoutBody(s.deleteWebhook)),
		jsonRoute("POST", hooks+"/{id}/rotate", admin, s.rotateWebhook),
		jsonRoute("POST", hooks+"/{id}/disable", admin, s.disableWebhook),
		jsonRoute("POST", hooks+"/{id}/enable", admin, withoutBody(s.enableWebhook)),
		jsonRoute("POST", hooks+"/{id}/test", admin, withoutBody(s.testWebhook)),
		jsonRoute("POST", hooks+"/{id}/redeliver", admin, withoutBody(s.redeliverDeadDeliveries)),
		jsonRoute("GET", deliveries, admin, s.listDeliveries, "webhook_id", "status", "after", "limit"),
		jsonRoute("POST", deliveries+"/{id}/redeliver", admin, withoutBody(s.redeliverDelivery)),
	}
}

// webhookActions returns the actions of the principal in a request's context.
func (s *Server) webhookActions() ops.WebhookActions {
	return ops.WebhookActions{Actions: s.actions(), Hooks: s.opts.Webhooks}
}

func (s *Server) listWebhooks(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	all, err := s.opts.Webhooks.List(r.Context())
	return listResponse("webhooks", all, err)
}

// decodeSettings reads the body of a registration or a change.
func decodeSettings(w http.ResponseWriter, r *http.Request) (s webhook.Settings, err error) {
	var in struct {
		URL      *string  `json:"url"`
		Types    []string `json:"types"`
		Format   string   `json:"format"`
		Cooldown *int     `json:"cooldown_s"`
	}
	if err := decode(w, r, maxBody, false, &in); err != nil {
		return s, err
	}
	s.Types, s.Format = in.Types, in.Format
	if in.URL != nil {
		if s.URL = *in.URL; s.URL == "" { // a change would leave it unchanged
			return s, problem.New(problem.Invalid, "url must not be empty")
		}
	}
	s.Cooldown, err = parseSeconds("cooldown_s", in.Cooldown, maxCooldown)
	return s, err
}

// parseSeconds converts the member name of a body, a number of seconds or nil.
func parseSeconds(name string, seconds *int, most int) (*time.Duration, error) {
	if seconds == nil {
		return nil, nil
	}
	if *seconds < 0 || *seconds > most {
		return nil, problem.New(problem.Invalid, "%s must be from 0 to %d", name, most)
	}
	return new(time.Duration(*seconds) * time.Second), nil
}

func (s *Server) createWebhook(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	settings, err := decodeSettings(w, r)
	if err != nil {
		return jsonResponse{}, err
	}
	created, err := s.webhookActions().Add(r.Context(), settings)
	return jsonResponse{status: http.StatusCreated, body: created}, err
}

func (s *Server) updateWebhook(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	settings, err := decodeSettings(w, r)
	if err != nil {
		return jsonResponse{}, err
	}
	return okResponse(s.webhookActions().Update(r.Context(), pathID(r), settings))
}

func (s *Server) deleteWebhook(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	return noContentResponse(s.webhookActions().Remove(r.Context(), pathID(r)))
}

func (s *Server) rotateWebhook(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	var in struct {
		Overlap *int `json:"overlap_s"`
	}
	if err := decode(w, r, maxBody, true, &in); err != nil {
		return jsonResponse{}, err
	}
	overlap, err := parseSeconds("overlap_s", in.Overlap, maxOverlap)
	if err != nil {
		return jsonResponse{}, err
	}
	overlap = cmp.Or(overlap, new(webhook.DefaultOverlap))
	return okResponse(s.webhookActions().RotateSecret(r.Context(), pathID(r), *overlap))
}

func (s *Server) disableWebhook(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	var in struct {
		Reason string `json:"reason"`
	}
	err := decode(w, r, maxBody, true, &in)
	if err == nil {
		err = checkText("reason", in.Reason)
	}
	if err != nil {
		return jsonResponse{}, err
	}
	return noContentResponse(s.webhookActions().Disable(r.Context(), pathID(r), in.Reason))
}

func (s *Server) enableWebhook(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	return noContentResponse(s.webhookActions().Enable(r.Context(), pathID(r)))
}

func (s *Server) testWebhook(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	return okResponse(s.webhookActions().Test(r.Context(), pathID(r)))
}

func (s *Server) redeliverDeadDeliveries(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	n, err := s.webhookActions().RedeliverDead(r.Context(), pathID(r))
	return okResponse(map[string]int{"deliveries": n}, err)
}

func (s *Server) redeliverDelivery(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	return noContentResponse(s.webhookActions().Redeliver(r.Context(), pathID(r)))
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
