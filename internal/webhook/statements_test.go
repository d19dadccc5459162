package webhook

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// explain returns the generic plan of a statement.
func (b *fixture) explain(sql string, args []any) string {
	b.t.Helper()
	var given []string
	for _, a := range args {
		text, err := json.Marshal(a)
		must(b.t, err)
		if text[0] == '[' { // as a PostgreSQL array
			text[0], text[len(text)-1] = '{', '}'
		}
		given = append(given, "'"+strings.Trim(string(text), `"`)+"'")
	}
	var plan []string
	must(b.t, pgx.BeginFunc(b.t.Context(), b.pool, func(tx pgx.Tx) error {
		for _, sql := range []string{
			"set local plan_cache_mode = force_generic_plan", "deallocate prepare all", "prepare it as " + sql,
		} {
			if _, err := tx.Exec(b.t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
		}
		rows, err := tx.Query(b.t.Context(), "explain (costs off) execute it("+strings.Join(given, ", ")+")",
			pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			return err
		}
		plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	}))
	return strings.Join(plan, "\n") + "\n"
}

// No statement scans all deliveries.
func TestStatements_UseIndexes(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	busy, still := b.add("https://example.com/"), b.add("https://example.org/")
	b.exec(`insert into cuelight_deliveries (webhook_id, event_id, type, task_id, payload, status, created_at,
		  finished_at, attempts)
		select case when n % 100 = 0 then $1 else $2 end::uuid, n, 'completed', gen_random_uuid(), repeat('x', 200),
		       case when n % 1000 = 1 then 'dead' when n % 1000 = 2 then 'pending' else 'delivered' end,
		       now() - n * interval '10 s', case when n % 1000 <> 2 then now() - n * interval '10 s' end, 1
		  from generate_series(1, 60000) as n`, still.ID, busy.ID)
	b.exec("analyze")
	list := func(f DeliveryFilter) (string, []any) {
		f.Limit = 100
		sql, args, err := f.query("video")
		must(t, err)
		return sql, args
	}
	type statement struct {
		name, sql string
		args      []any
		index     string // empty if several are possible
	}
	all := []statement{
		{"claim", claimSQL, []any{[]store.ID{busy.ID}, []int{4}, []store.ID{}, 16}, "cuelight_deliveries_due"},
		{
			"write", insertDeliveriesSQL,
			[]any{busy.ID, 9, []int64{1}, []string{"completed"}, []store.ID{newID()}, []string{"{}"}, []bool{false}},
			"cuelight_deliveries_order",
		},
		{
			"finish", finishAttemptSQL, []any{newID(), 1, "delivered", 0.0, 200, "", "https://example.com/"},
			"cuelight_deliveries_order",
		},
		{"outdate", deleteOutdatedProgressSQL, []any{busy.ID, []store.ID{newID()}, []string{"ingest"}, []store.ID{}}, ""},
		{"back", retryAfterOutageSQL, []any{busy.ID}, "cuelight_deliveries_due"},
		{"is due", hasDueSQL, []any{"video"}, ""},
		{"who waits", failedBeforeSQL, []any{"video"}, "cuelight_deliveries_due"},
		{"webhooks", listSQL, []any{"video"}, ""},
		{"redeliver dead", redeliverDeadSQL, []any{busy.ID, "video"}, ""},
	}
	for _, status := range []string{"delivered", "suppressed", "dead"} {
		all = append(all, statement{
			"sweep " + status, fmt.Sprintf(deleteFinishedSQL, status), []any{"video", 3600.0, maxDeletedRows},
			"cuelight_deliveries_finished",
		})
	}
	for _, status := range []string{"", "delivered"} {
		sql, args := list(DeliveryFilter{Webhook: still.ID, Status: status})
		all = append(all, statement{"list " + status, sql, args, "cuelight_deliveries_list"})
		sql, args = list(DeliveryFilter{Webhook: still.ID, Status: status, After: newID()})
		all = append(all, statement{"list on " + status, sql, args, "cuelight_deliveries_list"})
	}
	for _, s := range all {
		plan := b.explain(s.sql, s.args)
		sorted := strings.HasPrefix(s.name, "sweep") && strings.Contains(plan, "Sort Key: d.finished_at")
		if strings.Contains(plan, "Seq Scan on cuelight_deliveries") || !strings.Contains(plan, s.index) || sorted {
			t.Errorf("%s: it does not use %s:\n%s", s.name, s.index, plan)
		}
	}
}
