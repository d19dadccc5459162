package attached

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/statement"
	"github.com/cuelight/cuelight/store"
)

const (
	// Automatic is in AddedBy of captions that were made of what is spoken.
	Automatic = "automatic captions"
	// MaxAutomaticAttempts is how often automatic captions are tried, until the video is published again.
	MaxAutomaticAttempts = 5
	// Never is the wait of a claim that is done.
	Never time.Duration = -1
)

// ErrClaimLost means that another process may have the claim.
var ErrClaimLost = errors.New("the claim was lost")

// AutomaticClaim is the right of one process to make the automatic captions of a task.
type AutomaticClaim struct {
	Task    store.ID
	Spoken  string // the language, as in video.Settings
	Attempt int    // 1 for the first
	token   store.ID
}

const requestAutomaticSQL = `
/* request automatic captions */
insert into cuelight_automatic_captions as a (pipeline, task_id, language)
values ($1, $2, $3)
    on conflict (pipeline, task_id) do update set language = excluded.language, attempts = 0, run_at = now()
 where a.attempts >= $4 and a.run_at <= now()`

// RequestAutomatic asks for automatic captions of a task, once it is published. It repeats a request whose attempts have failed,
// and no other one.
func (c Captions) RequestAutomatic(ctx context.Context, task store.ID, spoken string) error {
	db := c.store.DB()
	_, err := db.Exec(ctx, requestAutomaticSQL, c.store.Graph().Name(), task, spoken, MaxAutomaticAttempts)
	return statement.Wrap(db, "request automatic captions", err)
}

const claimAutomaticSQL = `
/* claim automatic captions */
update cuelight_automatic_captions
   set token = cuelight_id(), attempts = attempts + 1, run_at = now() + make_interval(secs => $3)
 where pipeline = $1
   and task_id = (select a.task_id
                    from cuelight_automatic_captions a
                    join {tasks} t on t.id = a.task_id and t.publish_status = 'completed'
                   where a.pipeline = $1 and a.run_at <= now() and a.attempts < $2
                   order by a.run_at
                   limit 1
                     for update of a skip locked)
returning task_id, language, attempts, token`

// ClaimAutomatic claims a request of a published task; ok is false if there is none. The claim is lost after the lease, unless it is
// extended.
func (c Captions) ClaimAutomatic(ctx context.Context, lease time.Duration) (claim AutomaticClaim, ok bool, err error) {
	db, g := c.store.DB(), c.store.Graph()
	err = db.QueryRow(ctx, g.SQL(claimAutomaticSQL), g.Name(), MaxAutomaticAttempts, lease.Seconds()).Scan(
		&claim.Task, &claim.Spoken, &claim.Attempt, &claim.token)
	if errors.Is(err, pgx.ErrNoRows) {
		return claim, false, nil
	}
	return claim, err == nil, statement.Wrap(db, "claim automatic captions", err)
}

const scheduleAutomaticSQL = `
/* schedule automatic captions */
update cuelight_automatic_captions
   set run_at = case when $4::float8 >= 0 then now() + make_interval(secs => $4) end,
       token = case when $4 >= 0 then token end,
       attempts = $5, error = $6
 where pipeline = $1 and task_id = $2 and token = $3`

// ScheduleAutomatic sets the time of the next attempt, and why the last one failed. It extends the claim of an attempt that goes on.
// If another process may have the claim, it returns ErrClaimLost.
func (c Captions) ScheduleAutomatic(ctx context.Context, claim AutomaticClaim, wait time.Duration, failure string) error {
	db := c.store.DB()
	tag, err := db.Exec(ctx, scheduleAutomaticSQL, c.store.Graph().Name(), claim.Task, claim.token, wait.Seconds(), claim.Attempt,
		statement.CleanText(failure))
	if err == nil && tag.RowsAffected() == 0 {
		return ErrClaimLost
	}
	return statement.Wrap(db, "schedule automatic captions", err)
}
