// Package profiles has the named profiles of videos: settings that submissions take by name.
//
// They are in the database, because hosts share no files. [Prepare] copies the settings of a profile
// into the params of a task when it is submitted, so that a change concerns later submissions only.
package profiles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/statement"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// Profile is a named profile.
type Profile struct {
	Name string `json:"name"`
	// Definition has the members of video.Settings.
	Definition json.RawMessage `json:"definition"`
	// UpdatedAt and UpdatedBy are about the last change; empty for the built-in profile.
	UpdatedAt *time.Time `json:"updated_at,omitempty"`
	UpdatedBy string     `json:"updated_by,omitempty"` // user or API key
}

// IsBuiltIn reports whether the profile is built in, and nobody has redefined it.
func (p Profile) IsBuiltIn() bool { return p.UpdatedAt == nil }

// builtIn are the profiles that always exist, by name. The default is the worker's flags, which are those of balanced unless its
// operator says otherwise. docs/performance.md has what the others cost and save.
var builtIn = []Profile{
	{Name: "balanced", Definition: json.RawMessage(`{"quality": 24, "preset": "veryfast"}`)},
	{Name: video.DefaultProfile, Definition: json.RawMessage("{}")},
	{Name: "quick", Definition: json.RawMessage(`{"quality": 24, "preset": "superfast"}`)},
	{Name: "small", Definition: json.RawMessage(`{"quality": 25, "preset": "fast"}`)},
}

// NotFoundError says that there is no profile of a name. It matches [store.ErrNotFound].
type NotFoundError struct {
	Name  string
	Names []string // of the existing profiles
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("there is no profile %q; existing: %s", e.Name, strings.Join(e.Names, ", "))
}

// Unwrap returns store.ErrNotFound.
func (e *NotFoundError) Unwrap() error { return store.ErrNotFound }

// ErrBuiltIn says that a profile cannot be removed. It matches [store.ErrInvalid].
var ErrBuiltIn = fmt.Errorf("%w: the profile is built in and was not redefined, so it cannot be removed", store.ErrInvalid)

// Profiles reads and writes the profiles of a pipeline. It has no state of its own.
type Profiles struct{ store *store.Store }

// New returns the profiles of a store's pipeline, in the store's transaction if it has one.
func New(st *store.Store) Profiles { return Profiles{st} }

const listSQL = `
/* list profiles */
select name, definition, updated_at, updated_by from cuelight_profiles where pipeline = $1 order by name`

// List returns the profiles by name, with the built-in ones.
func (p Profiles) List(ctx context.Context) ([]Profile, error) {
	rows, err := p.store.DB().Query(ctx, listSQL, p.store.Graph().Name())
	if err != nil {
		return nil, statement.Wrap(p.store.DB(), "list profiles", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (q Profile, err error) {
		err = row.Scan(&q.Name, &q.Definition, &q.UpdatedAt, &q.UpdatedBy)
		return q, err
	})
	if err != nil {
		return nil, statement.Wrap(p.store.DB(), "list profiles", err)
	}
	for _, b := range builtIn {
		i, found := slices.BinarySearchFunc(all, b.Name, func(q Profile, name string) int { return strings.Compare(q.Name, name) })
		if !found {
			all = slices.Insert(all, i, b)
		}
	}
	return all, nil
}

// Get returns a profile, or a [*NotFoundError].
func (p Profiles) Get(ctx context.Context, name string) (Profile, error) {
	all, err := p.List(ctx)
	if err != nil {
		return Profile{}, err
	}
	return find(all, name)
}

func find(all []Profile, name string) (Profile, error) {
	notFound := &NotFoundError{Name: name}
	for _, q := range all {
		if q.Name == name {
			return q, nil
		}
		notFound.Names = append(notFound.Names, q.Name)
	}
	return Profile{}, notFound
}

const setSQL = `
/* set profile */
insert into cuelight_profiles (pipeline, name, definition, updated_by) values ($1, $2, $3::text::jsonb, $4)
    on conflict (pipeline, name) do update
   set definition = excluded.definition, updated_at = excluded.updated_at, updated_by = excluded.updated_by
returning definition, updated_at`

// Set creates or replaces a profile. Errors of the name and the definition are a [*video.ParamsError].
func (p Profiles) Set(ctx context.Context, name string, definition json.RawMessage, by string) (Profile, error) {
	if err := video.CheckProfileName(name); err != nil {
		return Profile{}, err
	}
	settings, err := video.ParseSettings(definition)
	if err != nil {
		return Profile{}, err
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return Profile{}, err
	}
	q := Profile{Name: name, UpdatedBy: statement.CleanText(by)}
	err = p.store.DB().QueryRow(ctx, setSQL, p.store.Graph().Name(), name, string(text), q.UpdatedBy).Scan(&q.Definition, &q.UpdatedAt)
	return q, statement.Wrap(p.store.DB(), "set profile", err)
}

const removeSQL = `
/* remove profile */
delete from cuelight_profiles where pipeline = $1 and name = $2`

// Remove deletes a profile, or returns a [*NotFoundError]. Without its redefinition, a built-in profile is again what it was.
// Tasks keep the settings that they have.
func (p Profiles) Remove(ctx context.Context, name string) error {
	tag, err := p.store.DB().Exec(ctx, removeSQL, p.store.Graph().Name(), name)
	switch {
	case err != nil:
		return statement.Wrap(p.store.DB(), "remove profile", err)
	case tag.RowsAffected() > 0:
		return nil
	}
	if _, err = p.Get(ctx, name); err == nil {
		err = ErrBuiltIn
	}
	return err
}

// Prepare checks the params of submissions and resolves their profiles, in place. A submission without a
// profile has the default one, if that was redefined. Errors of params are a [*video.ParamsError].
func Prepare(ctx context.Context, in *store.Store, subs []store.Submission) error {
	names := make([]string, len(subs)) // of the profiles to resolve
	isAnyOpen := false
	for i := range subs {
		params, err := video.ParseParams(subs[i].Params)
		if err != nil {
			return err
		}
		// Params of another task, whose profile was resolved, keep the settings of then.
		if params.ProfileResolvedAt.IsZero() {
			names[i], isAnyOpen = params.Profile, true
			if names[i] == "" {
				names[i] = video.DefaultProfile
			}
		}
	}
	var all []Profile
	if isAnyOpen {
		var err error
		if all, err = New(in).List(ctx); err != nil {
			return err
		}
	}
	now := time.Now()
	for i := range subs {
		if err := resolve(&subs[i], names[i], all, now); err != nil {
			return err
		}
	}
	return nil
}

// resolve copies the settings of the named profile into the params of a submission.
func resolve(sub *store.Submission, name string, all []Profile, now time.Time) error {
	if name != "" {
		q, err := find(all, name)
		if notFound, ok := errors.AsType[*NotFoundError](err); ok {
			return video.NewParamsError(notFound.Error())
		}
		if named, _ := video.ParseParams(sub.Params); named.Profile != "" || !q.IsBuiltIn() {
			if sub.Params, err = video.ApplyProfile(sub.Params, name, q.Definition, now); err != nil {
				return err
			}
		}
	}
	return video.TakePlacement(sub)
}

// SelectRenditions makes a retry of a task's transcode make only renditions of these heights again; without heights, and
// if a stage is retried, it makes all. It returns the stage to retry from.
func (p Profiles) SelectRenditions(ctx context.Context, task store.ID, from string, heights []int) (string, error) {
	if len(heights) == 0 && from == "" {
		return "", nil // what failed is continued
	}
	t, err := p.store.Get(ctx, task)
	if err != nil {
		return "", err
	}
	if len(heights) == 0 {
		if params, found := video.DropSelection(t.Params); found {
			err = p.store.SetParams(ctx, task, params)
		}
		return from, err
	}
	if from != "" && from != "transcode" {
		return "", video.NewParamsError("renditions: they are made by the stage transcode, so the retry cannot be from " + from)
	}
	ingest, transcode, err := p.results(ctx, task)
	if errors.Is(err, store.ErrNotFound) {
		err = video.NewParamsError("renditions: the task has none yet that could be kept; retry it without a selection")
	}
	if err != nil {
		return "", err
	}
	params, err := video.SelectRenditions(t.Params, ingest, transcode, heights)
	if err != nil {
		return "", err
	}
	return "transcode", p.store.SetParams(ctx, task, params)
}

// results are those of ingest and transcode.
func (p Profiles) results(ctx context.Context, task store.ID) (ingest, transcode json.RawMessage, err error) {
	if ingest, err = p.store.Result(ctx, task, "ingest"); err == nil {
		transcode, err = p.store.Result(ctx, task, "transcode")
	}
	return ingest, transcode, err
}

// PossibleRenditions returns the heights that [Profiles.SelectRenditions] accepts for a task; none if it has no
// renditions that could be kept.
func (p Profiles) PossibleRenditions(ctx context.Context, task store.ID) ([]int, error) {
	ingest, _, err := p.results(ctx, task)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return video.PossibleRenditions(ingest)
}
