package operators

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/statement"
	"github.com/cuelight/cuelight/store"
)

// AuditEntry is an operator action.
type AuditEntry struct {
	ID     int64     `json:"id"` // grows
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`            // user or API key
	Action string    `json:"action"`           // for example retry
	Target string    `json:"target,omitempty"` // a task, stage, worker, key or webhook
	// Detail is a JSON object. Default {}.
	Detail json.RawMessage `json:"detail"`
}

const auditSQL = `
/* write audit entry */
insert into cuelight_audit (actor, action, target, detail) values ($1, $2, $3, $4::text::jsonb)`

// WriteAudit adds an entry to the audit log, in the transaction of the action.
func WriteAudit(ctx context.Context, tx store.DB, e AuditEntry) error {
	detail := "{}"
	if len(e.Detail) > 0 {
		detail = strings.ReplaceAll(string(e.Detail), `\u0000`, `\ufffd`) // jsonb cannot store NUL
	}
	_, err := tx.Exec(ctx, auditSQL,
		statement.CleanText(e.Actor), statement.CleanText(e.Action), statement.CleanText(e.Target), detail)
	return statement.Wrap(tx, "write audit entry", err)
}

const auditsSQL = `
/* list audit entries */
select id, at, actor, action, target, detail
  from cuelight_audit
 where $1::bigint = 0 or id < $1
 order by id desc
 limit $2`

// Audits lists audit entries, the newest first: up to limit, by default 100, before the
// entry with the id after; 0 for the first page.
func Audits(ctx context.Context, db store.DB, after int64, limit int) (all []AuditEntry, err error) {
	rows, err := db.Query(ctx, auditsSQL, after, cmp.Or(max(limit, 0), 100))
	if err == nil {
		all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[AuditEntry])
	}
	return all, statement.Wrap(db, "list audit entries", err)
}

const pruneAuditSQL = `
/* prune audit log */
delete from cuelight_audit where id in (
  select id from cuelight_audit where at < now() - make_interval(secs => $1) order by id limit $2)`

// pruneBatch is how many rows one transaction of PruneAudit deletes.
const pruneBatch = 500

// PruneAudit deletes the entries that are older than keep, and returns how many. It does not wait long for a lock:
// while it waits, heartbeats may lack its connection.
func PruneAudit(ctx context.Context, db store.DB, keep time.Duration) (deleted int, err error) {
	for n := pruneBatch; n == pruneBatch; deleted += n {
		n = 0
		err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, statement.LimitLockWaitSQL, statement.BackgroundLockWait)
			if err != nil {
				return err
			}
			tag, err := tx.Exec(ctx, pruneAuditSQL, keep.Seconds(), pruneBatch)
			n = int(tag.RowsAffected())
			return err
		})
		if err != nil {
			return deleted, statement.Wrap(db, "prune audit log", err)
		}
	}
	return deleted, nil
}
