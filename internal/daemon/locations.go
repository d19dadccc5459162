package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// locations are those of a configuration, by their kind. The database has their ids: the first `cuelight serve` records
// them, and cuelight relocate changes them.
func locations(c video.Config) map[video.ContentKind]video.Location {
	return map[video.ContentKind]video.Location{
		video.DataContent: c.DataLocation(), video.PublishContent: c.PublishLocation(),
	}
}

// identifyTimeout is that of reading or creating the id of a bucket.
const identifyTimeout = 30 * time.Second

// identifyWorkspace returns the ids of the locations. Those that have none get one.
func identifyWorkspace(ctx context.Context, c video.Config) (w Workspace, err error) {
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	ids := make(map[video.ContentKind]string)
	for kind, l := range locations(c) {
		if ids[kind], err = l.CreateID(ctx); err != nil {
			return w, explainLocation(l.String(), err)
		}
	}
	// The directories of this host have an id also with buckets: the stages look whether their disks are mounted.
	for _, dir := range []string{c.DataDir, c.PublishDir} {
		if _, err := (video.Location{Dir: dir}).CreateID(ctx); err != nil {
			return w, explainLocation(dir, err)
		}
	}
	return Workspace{Data: ids[video.DataContent], Published: ids[video.PublishContent]}, nil
}

// recordedLocation is what the database knows about a location; without an id it knows none.
type recordedLocation struct{ id, address, host string }

const recordedLocationSQL = `
/* recorded location */
select id, address, host from cuelight_locations where pipeline = $1 and kind = $2`

func readRecordedLocation(ctx context.Context, st *store.Store, kind video.ContentKind) (r recordedLocation, err error) {
	err = st.DB().QueryRow(ctx, recordedLocationSQL, store.Video().Name(), kind).Scan(&r.id, &r.address, &r.host)
	if errors.Is(err, pgx.ErrNoRows) {
		return r, nil
	}
	return r, err
}

// CheckLocation returns an error if the tasks of the database have their files in another location of the kind. It
// changes nothing.
func CheckLocation(ctx context.Context, st *store.Store, kind video.ContentKind, l video.Location) error {
	recorded, err := readRecordedLocation(ctx, st, kind)
	if err != nil || recorded.id == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	id, err := l.ID(ctx)
	switch {
	case err != nil:
		return explainLocation(l.String(), err)
	case id == recorded.id:
		return nil
	}
	content, at := "results", l.String()
	if kind == video.PublishContent {
		content = "published videos"
	}
	return &usererr.Error{
		Kind: usererr.Usage,
		Text: fmt.Sprintf("the %s of this database are in another location than %s: in %s, as %s calls it",
			content, usererr.Printable(at), usererr.Printable(recorded.address), recorded.host),
		Hint: fmt.Sprintf("correct --%s-dir or the database's address; if the files were copied there, run cuelight relocate.\n"+
			"If %s has taken its place, write %s into its file %s", kind, usererr.Printable(at), recorded.id, video.IDFile),
	}
}

const recordLocationSQL = `
/* record a location */
insert into cuelight_locations as l (pipeline, kind, id, address, host)
values ($1, $2, $3, $4, $5)
on conflict (pipeline, kind) do update
   set id = excluded.id, address = excluded.address, host = excluded.host, recorded_at = now()
 where l.id = any($6)`

// recordLocation records the location unless another one is recorded, whose id is neither the same nor the old one.
func recordLocation(ctx context.Context, db store.DB, kind video.ContentKind, l video.Location, id string, old ...string) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	_, err = db.Exec(ctx, recordLocationSQL, store.Video().Name(), kind, id, l.String(), host, append(old, id))
	return err
}

// useLocations returns the ids of the locations and records them in the database. It returns an error if the tasks of
// the database have their files elsewhere; then it changes nothing in the locations.
func useLocations(ctx context.Context, st *store.Store, c video.Config) (w Workspace, err error) {
	for kind, l := range locations(c) {
		if err := CheckLocation(ctx, st, kind, l); err != nil {
			return w, err
		}
	}
	if w, err = identifyWorkspace(ctx, c); err != nil {
		return w, err
	}
	for kind, l := range locations(c) {
		id := w.Data
		if kind == video.PublishContent {
			id = w.Published
		}
		if err := recordLocation(ctx, st.DB(), kind, l, id); err != nil {
			return w, err
		}
		// Another process may have recorded another one since the first check.
		if err := CheckLocation(ctx, st, kind, l); err != nil {
			return w, err
		}
	}
	return w, nil
}

// recordPublishDirSQL changes where videos were published, in the results of the attempts that did.
const recordPublishDirSQL = `
/* record where videos are published */
update attempts
   set result = jsonb_set(result, '{publish_dir}', to_jsonb($1::text))
 where task_id = any($2) and stage = $3 and outcome = 'completed' and result->>'publish_dir' <> $1`

// Relocate records that the content of the old locations is in the new ones, whose ids are others: no daemon starts with the
// old locations any more. No worker is alive. Published are the tasks whose videos were relocated.
func Relocate(ctx context.Context, st *store.Store, r video.Relocation, published []store.ID) error {
	old, ids := make(map[video.ContentKind]string), make(map[video.ContentKind]string)
	for kind, route := range r {
		var err error
		if old[kind], err = route.From.ID(ctx); err != nil {
			return explainLocation(route.From.String(), err)
		}
		if ids[kind], err = relocatedID(ctx, route.To, old[kind]); err != nil {
			return explainLocation(route.To.String(), err)
		}
	}
	return pgx.BeginFunc(ctx, st.DB(), func(tx pgx.Tx) error {
		for kind, route := range r {
			if err := recordLocation(ctx, tx, kind, route.To, ids[kind], old[kind]); err != nil {
				return fmt.Errorf("record location: %w", err)
			}
		}
		if route, ok := r[video.PublishContent]; ok {
			if _, err := tx.Exec(ctx, recordPublishDirSQL, route.To.String(), published, publishStage); err != nil {
				return fmt.Errorf("record where videos are published: %w", err)
			}
		}
		return nil
	})
}

// relocatedID returns the id of a new location. It gets one if it has none, or that of the old location with the copy. Another one
// stays: the location may have content of the other kind, whose id is recorded.
func relocatedID(ctx context.Context, to video.Location, old string) (string, error) {
	id, err := to.ID(ctx)
	if err == nil && (id == "" || id == old) {
		return to.ReplaceID(ctx)
	}
	return id, err
}

// CheckNewDatabase returns an error if a location has the files of tasks, which a new database would not know.
func CheckNewDatabase(ctx context.Context, l video.Location) error {
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	id, err := l.ID(ctx)
	if err != nil {
		return explainLocation(l.String(), err)
	}
	if id == "" {
		return nil
	}
	hint := "name that database with --database-url"
	if l.Bucket != nil {
		hint += ", or the directory of the private database with --local-dir"
	}
	return &usererr.Error{
		Kind: usererr.Usage,
		Text: fmt.Sprintf("%s has the files of another database's tasks, which a new private database would not know",
			usererr.Printable(l.String())),
		Hint: hint + fmt.Sprintf(".\nTo begin again without these tasks, choose another --data-dir, or delete %s there", video.IDFile),
	}
}

// explainLocation translates an error of a location. A problem of the storage service explains itself.
func explainLocation(location string, err error) error {
	if _, ok := errors.AsType[*storage.ServiceError](err); ok {
		return fmt.Errorf("%s: %w", location, err)
	}
	return &usererr.Error{
		Kind: usererr.Usage, Text: fmt.Sprintf("%s: %s", usererr.Printable(location), usererr.FirstLine(err.Error())),
		Hint: "cuelight doctor, with the same --data-dir and --publish-dir, says what is missing",
	}
}
