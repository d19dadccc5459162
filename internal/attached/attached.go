// Package attached has the captions that users attach to videos: files of subtitles, each with a language, and a file of chapters.
//
//	added, err := attached.New(st).Add(ctx, task, "film.srt", data, attached.File{Language: "de"})
//	err = st.Retry(ctx, task, "assemble")
//
// They are in the database, because hosts share no files, and stay with a task until it is purged. [Captions.Contents] gives them to the
// stage that assembles the video. The package neither retries the task nor publishes anything.
package attached

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/text/language"

	"github.com/cuelight/cuelight/internal/media/captions"
	"github.com/cuelight/cuelight/internal/statement"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// MaxPerTask limits the captions of a task.
const MaxPerTask = 100

// File describes captions or chapters.
type File struct {
	ID store.ID `json:"id"` // of the attachment
	// Chapters means that it has chapters, which replace those of the source, instead of captions. A task has one such file; another
	// one replaces it. It has no name and none of the flags below, and may have no language.
	Chapters bool `json:"chapters,omitempty"`
	// Language is a BCP 47 tag, such as "de" or "pt-BR". Name is what a player's menu shows. Default: the language in its own words.
	Language string `json:"language"`
	Name     string `json:"name,omitempty"`
	// Default is shown unless the viewer chose otherwise. Forced has only what every viewer must read, such as signs. SDH also
	// describes sounds, for viewers who do not hear them.
	Default bool      `json:"default,omitempty"`
	Forced  bool      `json:"forced,omitempty"`
	SDH     bool      `json:"sdh,omitempty"`
	Cues    int       `json:"cues"` // or chapters
	AddedAt time.Time `json:"added_at"`
	AddedBy string    `json:"added_by"` // user or API key
}

// String returns the language and the size, such as "de, 120 cues" or "8 chapters".
func (f File) String() string {
	unit := "cue"
	if f.Chapters {
		unit = "chapter"
	}
	if f.Cues != 1 {
		unit += "s"
	}
	return strings.TrimPrefix(fmt.Sprintf("%s, %d %s", f.Language, f.Cues, unit), ", ")
}

// Captions reads and writes the attached captions of a pipeline. It has no state of its own.
type Captions struct{ store *store.Store }

// New returns the captions of a store's pipeline, in the store's transaction if it has one.
func New(st *store.Store) Captions { return Captions{st} }

// InvalidError says why captions cannot be attached. It matches [store.ErrInvalid].
type InvalidError struct{ Reason string }

func (e *InvalidError) Error() string { return e.Reason }

// Unwrap returns store.ErrInvalid.
func (e *InvalidError) Unwrap() error { return store.ErrInvalid }

const addSQL = `
/* attach captions */
insert into cuelight_captions (pipeline, task_id, chapters, language, name, is_default, forced, sdh, cues, content, added_by)
select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11
 where (select count(*) from cuelight_captions where pipeline = $1 and task_id = $2) < $12
    on conflict (pipeline, task_id) where chapters
    do update set language = excluded.language, cues = excluded.cues, content = excluded.content, added_at = excluded.added_at,
                  added_by = excluded.added_by
returning id, added_at`

// Add attaches a file, whose name says its format by its ending, and what else f leaves empty: see [FromName].
// Errors of the file and of the description are an [*InvalidError].
func (c Captions) Add(ctx context.Context, task store.ID, fileName string, data []byte, f File) (File, error) {
	content, err := check(fileName, data, &f)
	if err != nil {
		return f, err
	}
	if _, err := c.store.Get(ctx, task); err != nil {
		return f, err
	}
	db := c.store.DB()
	err = db.QueryRow(ctx, addSQL, c.store.Graph().Name(), task, f.Chapters, f.Language, f.Name, f.Default, f.Forced, f.SDH,
		f.Cues, string(content), statement.CleanText(f.AddedBy), MaxPerTask).Scan(&f.ID, &f.AddedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return f, &InvalidError{fmt.Sprintf("the task has %d captions, the limit; remove one", MaxPerTask)}
	}
	return f, statement.Wrap(db, "attach captions", err)
}

// Check returns the error that Add would return for a file and its description, and completes that.
func Check(fileName string, data []byte, f *File) error {
	_, err := check(fileName, data, f)
	return err
}

// check also returns the content as WebVTT.
func check(fileName string, data []byte, f *File) (content []byte, err error) {
	named := FromName(fileName)
	f.Chapters, f.Language = f.Chapters || named.Chapters, cmp.Or(f.Language, named.Language)
	f.Default, f.Forced, f.SDH = f.Default || named.Default, f.Forced || named.Forced, f.SDH || named.SDH
	f.Name = statement.CleanText(f.Name)
	switch {
	case f.Chapters && (f.Name != "" || f.Default || f.Forced || f.SDH):
		return nil, &InvalidError{"chapters have no name, and are neither default, forced nor sdh; leave these out"}
	case f.Language == "" && !f.Chapters:
		return nil, &InvalidError{"the language is not known; send it, or have it in the name of the file, such as film.de.srt"}
	case f.Language != "":
		tag, err := language.Parse(f.Language)
		if err != nil {
			return nil, &InvalidError{fmt.Sprintf("language %q is not a BCP 47 tag; send one such as de or pt-BR", f.Language)}
		}
		f.Language = tag.String()
	}
	if f.Chapters {
		var all []captions.Chapter
		all, err = captions.ParseChapters(data, f.Language)
		content, f.Cues = captions.ChaptersWebVTT(all), len(all)
	} else {
		var all []captions.Cue
		all, err = captions.Parse(fileName, data, f.Language)
		content, f.Cues = captions.WebVTT(all), len(all)
	}
	if wrong, ok := errors.AsType[*captions.Error](err); ok {
		return nil, &InvalidError{wrong.Error()}
	}
	return content, err
}

const listSQL = `
/* list attached captions */
select id, chapters, language, name, is_default, forced, sdh, cues, added_at, added_by
  from cuelight_captions
 where pipeline = $1 and task_id = $2
 order by added_at, id`

// List returns the captions of a task, the oldest first.
func (c Captions) List(ctx context.Context, task store.ID) ([]File, error) {
	db := c.store.DB()
	rows, err := db.Query(ctx, listSQL, c.store.Graph().Name(), task)
	if err != nil {
		return nil, statement.Wrap(db, "list attached captions", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (f File, err error) {
		err = row.Scan(&f.ID, &f.Chapters, &f.Language, &f.Name, &f.Default, &f.Forced, &f.SDH, &f.Cues, &f.AddedAt, &f.AddedBy)
		return f, err
	})
	return all, statement.Wrap(db, "list attached captions", err)
}

const removeSQL = `
/* remove attached captions */
delete from cuelight_captions where pipeline = $1 and task_id = $2 and id = $3`

// Remove deletes captions of a task, or returns [store.ErrNotFound].
func (c Captions) Remove(ctx context.Context, task, id store.ID) error {
	db := c.store.DB()
	tag, err := db.Exec(ctx, removeSQL, c.store.Graph().Name(), task, id)
	if err == nil && tag.RowsAffected() == 0 {
		return store.ErrNotFound
	}
	return statement.Wrap(db, "remove attached captions", err)
}

const pruneSQL = `
/* delete captions of purged tasks */
with requests as (
  delete from cuelight_automatic_captions a
   where pipeline = $1
     and not exists (select from {tasks} t where t.id = a.task_id)
     and not exists (select from {deleted_tasks} d where d.id = a.task_id and d.purged_at is null))
delete from cuelight_captions c
 where pipeline = $1
   and not exists (select from {tasks} t where t.id = c.task_id)
   and not exists (select from {deleted_tasks} d where d.id = c.task_id and d.purged_at is null)`

// Prune deletes the captions of tasks that were purged, and their requests, and returns how many captions.
func (c Captions) Prune(ctx context.Context) (int, error) {
	db, g := c.store.DB(), c.store.Graph()
	tag, err := db.Exec(ctx, g.SQL(pruneSQL), g.Name())
	return int(tag.RowsAffected()), statement.Wrap(db, "delete captions of purged tasks", err)
}

const contentSQL = `
/* read attached captions */
select chapters, language, name, is_default, forced, sdh, content
  from cuelight_captions
 where pipeline = $1 and task_id = $2
 order by added_at, id`

// Contents returns the captions of a task, with their text, for video.Config.Captions.
func (c Captions) Contents(ctx context.Context, task store.ID) ([]video.AttachedCaptions, error) {
	db := c.store.DB()
	rows, err := db.Query(ctx, contentSQL, c.store.Graph().Name(), task)
	if err != nil {
		return nil, statement.Wrap(db, "read attached captions", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (a video.AttachedCaptions, err error) {
		err = row.Scan(&a.Chapters, &a.Language, &a.Name, &a.Default, &a.Forced, &a.SDH, &a.WebVTT)
		return a, err
	})
	return all, statement.Wrap(db, "read attached captions", err)
}
