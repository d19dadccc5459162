package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/attached"
	"github.com/cuelight/cuelight/internal/eventfeed"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/internal/profiles"
	"github.com/cuelight/cuelight/internal/trace"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
	"github.com/cuelight/cuelight/web/ui"
)

// linkAge is how long the addresses for viewers that pages offer are valid.
const linkAge = 7 * 24 * time.Hour

// newDashboard returns the dashboard's pages.
func (s *services) newDashboard() (*ui.UI, error) {
	d, base := s.d, s.d.HTTP.BasePath
	videos := s.playback
	videos.URL, videos.Valid = base, linkAge
	return ui.New(ui.Options{
		Store: ui.NewReader(s.lists), Actions: newDashboardActions(d.DB.Reads.Store, d.HTTP.MaxSubmissions), BasePath: base,
		Version: d.Engine.Version,
		Uploads: web.UploadsPath(base), Login: base + "/login", Logout: base + "/logout",
		Subscribe: func(keep func(store.Event) bool) ui.Subscription { return s.feed.Subscribe(eventfeed.Now, keep) },
		Viewer: func(ctx context.Context) ui.Viewer {
			p := access.PrincipalOf(ctx)
			return ui.Viewer{Name: p.Name, Submit: p.Scope.Allows(access.Submit), Operate: p.Scope.Allows(access.Admin)}
		},
		OnError: func(page string, err error) {
			d.Log.Warn("page cannot be shown", zap.String("page", page), zap.Error(err))
		},
		Profiles: dashboardProfiles(s.lists), SettingsOf: dashboardSettings,
		RenditionsOf: profiles.New(s.lists).PossibleRenditions,
		Captions:     attached.New(s.lists).List,
		WakeLatency:  s.wakeLatency.within,
		Playback: func(ctx context.Context, tasks ...store.Task) (map[store.ID]*playback.Video, error) {
			return videos.Find(ctx, s.lists, tasks...)
		},
		PublicURL: d.HTTP.PublicURL,
		ReadFrom:  s.readFrom(),
		OnAction:  s.requireReplay,
	})
}

// dashboardProfiles returns a function that lists the profiles, the default one first.
func dashboardProfiles(st *store.Store) func(context.Context) ([]ui.Profile, error) {
	return func(ctx context.Context) ([]ui.Profile, error) {
		all, err := profiles.New(st).List(ctx)
		var shown []ui.Profile
		for _, p := range all {
			text := string(p.Definition)
			if settings, err := video.ParseSettings(p.Definition); err == nil { // SQL may have written others
				text = settings.String()
			}
			s := ui.Profile{Name: p.Name, Settings: text, UpdatedAt: p.UpdatedAt, UpdatedBy: p.UpdatedBy}
			if p.Name == video.DefaultProfile {
				shown = slices.Insert(shown, 0, s)
			} else {
				shown = append(shown, s)
			}
		}
		return shown, err
	}
}

// dashboardSettings returns the profile and the settings in the params of a task.
func dashboardSettings(t store.Task) (profile, settings string) {
	p, err := video.ParseParams(t.Params)
	if err != nil {
		return "", "" // ingest says what is wrong
	}
	return p.Profile, p.Settings.String()
}

// dashboardActions are the actions of the dashboard's operators, who are API principals.
type dashboardActions struct{ ops.Actions }

// maxPerMinute limits the submissions for each user; 0 for no limit.
func newDashboardActions(st *store.Store, maxPerMinute int) dashboardActions {
	authorize := func(ctx context.Context, need access.Scope) (string, error) {
		if err := access.Check(ctx, need); err != nil {
			return "", fmt.Errorf("%w: %w", ui.ErrForbidden, err)
		}
		return access.PrincipalOf(ctx).Name, nil
	}
	return dashboardActions{ops.Actions{Store: st, Authorize: authorize, Prepare: profiles.Prepare, MaxPerMinute: maxPerMinute}}
}

// Submit submits tasks.
func (a dashboardActions) Submit(ctx context.Context, subs ...store.Submission) ([]store.Receipt, error) {
	for i := range subs {
		if err := prepareSubmission(ctx, &subs[i]); err != nil {
			return nil, err
		}
	}
	receipts, err := a.Actions.Submit(ctx, subs...)
	if rate, ok := errors.AsType[*ops.RateError](err); ok {
		err = fmt.Errorf("%w: %w", ui.ErrTooManySubmissions, rate)
	}
	return receipts, err
}

// Override replaces tasks by a new one.
func (a dashboardActions) Override(
	ctx context.Context, old []store.ID, by store.Submission,
) (store.Receipt, error) {
	if err := prepareSubmission(ctx, &by); err != nil {
		return store.Receipt{}, err
	}
	return a.Actions.Override(ctx, old, by)
}

// prepareSubmission checks whether the principal may submit the source, and records who
// submits it.
func prepareSubmission(ctx context.Context, s *store.Submission) error {
	principal := access.PrincipalOf(ctx)
	err := web.CheckSource(principal, s.Source)
	if errors.Is(err, access.ErrForbidden) {
		return fmt.Errorf("%w: %w", ui.ErrForbidden, err)
	}
	s.SubmittedBy = principal.Submitter()
	s.Traceparent = cmp.Or(s.Traceparent, trace.Traceparent(ctx))
	return err
}
