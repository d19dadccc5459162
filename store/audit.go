package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/statement"
)

// AuditEntry says what somebody did.
type AuditEntry struct {
	ID     int64     `json:"id"` // grows
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`            // who, as far as it is known
	Action string    `json:"action"`           // such as retry
	Target string    `json:"target,omitempty"` // a task, stage, worker, key or webhook
	// Detail is a JSON object. Default {}.
	Detail json.RawMessage `json:"detail"`
}

const auditSQL = `
/* write audit */
insert into cuelight_audit (pipeline, actor, action, target, detail) values ($1, $2, $3, $4, $5::text::jsonb)`

// Audit keeps what somebody did; ID and At are the database's. [Store.Audited]
// does both in one.
func (s *Store) Audit(ctx context.Context, e AuditEntry) error {
	detail := "{}"
	if len(e.Detail) > 0 {
		detail = strings.ReplaceAll(string(e.Detail), `\u0000`, `\ufffd`) // jsonb has no zeros
	}
	_, err := s.db.Exec(ctx, auditSQL, s.graph.name, statement.CleanText(e.Actor), statement.CleanText(e.Action), statement.CleanText(e.Target), detail)
	return s.explain("write audit", err)
}

// auditTries bounds how often Audited begins anew.
const auditTries = 5

// Audited runs do in a transaction and writes down the entry it returns in the
// same: what was done is never without its entry, nor the other way round. An
// entry without an Action is not written, for where nothing was done. Where
// another transaction gets in the way, do is called again, on a new one.
func (s *Store) WithAudit(ctx context.Context, do func(in *Store) (AuditEntry, error)) error {
	var err error
	for range auditTries {
		err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
			in := s.WithTx(tx)
			e, err := do(in)
			if err != nil || e.Action == "" {
				return err
			}
			return in.Audit(ctx, e)
		})
		if !IsRetryable(err) {
			return err
		}
	}
	return fmt.Errorf("after %d times: %w", auditTries, err)
}

const auditsSQL = `
/* list audit */
select id, at, actor, action, target, detail
  from cuelight_audit
 where pipeline = $1 and ($2::bigint = 0 or id < $2)
 order by id desc
 limit $3`

// Audits lists what was done, the newest first: at most limit entries, by default
// 100, from before the one with the id after; 0 is for the first page.
func (s *Store) Audits(ctx context.Context, after int64, limit int) ([]AuditEntry, error) {
	rows, err := s.db.Query(ctx, auditsSQL, s.graph.name, after, cmp.Or(max(limit, 0), 100))
	if err != nil {
		return nil, s.explain("list audit", err)
	}
	entries, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e AuditEntry, err error) {
		err = row.Scan(&e.ID, &e.At, &e.Actor, &e.Action, &e.Target, &e.Detail)
		return e, err
	})
	return entries, s.explain("list audit", err)
}
