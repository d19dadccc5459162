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
insert into {audit} (actor, action, target, detail) values ($1, $2, $3, $4::text::jsonb)`

func (s *Store) writeAudit(ctx context.Context, e AuditEntry) error {
	detail := "{}"
	if len(e.Detail) > 0 {
		detail = strings.ReplaceAll(string(e.Detail), `\u0000`, `\ufffd`) // jsonb cannot store NUL
	}
	_, err := s.exec(ctx, auditSQL,
		statement.CleanText(e.Actor), statement.CleanText(e.Action), statement.CleanText(e.Target), detail)
	return s.explain("write audit entry", err)
}

// auditTries is how often WithAudit tries in all.
const auditTries = 5

// WithAudit runs do in a transaction, together with the entry it returns. An entry without
// an Action is not written. Where the transaction conflicts with another one, do is called
// again, in a new transaction.
func (s *Store) WithAudit(ctx context.Context, do func(in *Store) (AuditEntry, error)) error {
	var err error
	for range auditTries {
		err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
			in := s.WithTx(tx)
			e, err := do(in)
			if err != nil || e.Action == "" {
				return err
			}
			return in.writeAudit(ctx, e)
		})
		if !IsRetryable(err) {
			return err
		}
	}
	return fmt.Errorf("after %d tries: %w", auditTries, err)
}

const auditsSQL = `
/* list audit entries */
select id, at, actor, action, target, detail
  from {audit}
 where $1::bigint = 0 or id < $1
 order by id desc
 limit $2`

// Audits lists audit entries, the newest first: up to limit, by default 100, before the
// entry with the id after; 0 for the first page.
func (s *Store) Audits(ctx context.Context, after int64, limit int) ([]AuditEntry, error) {
	return query(ctx, s, "list audit entries", auditsSQL, func(row pgx.CollectableRow) (e AuditEntry, err error) {
		err = row.Scan(&e.ID, &e.At, &e.Actor, &e.Action, &e.Target, &e.Detail)
		return e, err
	}, after, cmp.Or(max(limit, 0), 100))
}
