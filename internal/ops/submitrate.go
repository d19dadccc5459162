package ops

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/statement"
	"github.com/cuelight/cuelight/store"
)

const lockUserSQL = `
/* lock the submissions of a user */
select pg_advisory_xact_lock(hashtext('{tasks}'), hashtext($1))`

// submissionDelaySQL reads the task whose minute must be over before more are submitted.
const submissionDelaySQL = `
/* delay of a submission */
select extract(epoch from created_at + interval '1 min' - clock_timestamp())::float8 from {tasks}
 where user_id = $1
 order by id desc offset $2 limit 1`

// SubmissionDelay returns how long a user must wait before n more tasks, at most perMinute, do not exceed so many per
// minute; 0 for not at all. In a transaction it locks out other calls for the user until the end, so that the limit is exact.
// Deleted tasks do not count.
func SubmissionDelay(ctx context.Context, in *store.Store, user string, n, perMinute int) (time.Duration, error) {
	if _, err := in.DB().Exec(ctx, in.Graph().SQL(lockUserSQL), user); err != nil {
		return 0, statement.Wrap(in.DB(), "read submissions of user", err)
	}
	var seconds float64
	err := in.DB().QueryRow(ctx, in.Graph().SQL(submissionDelaySQL), user, max(perMinute-n, 0)).Scan(&seconds)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return max(time.Duration(seconds*float64(time.Second)), 0), statement.Wrap(in.DB(), "read submissions of user", err)
}
