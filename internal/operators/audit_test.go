package operators_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
)

func TestAudits_ReturnsPagesNewestFirst(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL))
	for i := range 5 {
		e := operators.AuditEntry{
			Actor: "admin", Action: "retry", Target: fmt.Sprint(i), Detail: json.RawMessage(`{"from":"a\u0000b"}`),
		}
		if err := operators.WriteAudit(t.Context(), pool, e); err != nil {
			t.Fatal(err)
		}
	}
	var seen []string
	var after int64
	for {
		page, err := operators.Audits(t.Context(), pool, after, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			seen = append(seen, e.Target)
			after = e.ID
			if e.At.IsZero() || e.Actor != "admin" || e.Action != "retry" || !json.Valid(e.Detail) {
				t.Errorf("entry is %+v", e)
			}
		}
	}
	if got := fmt.Sprint(seen); got != "[4 3 2 1 0]" {
		t.Errorf("targets are %s", got)
	}
}

func TestPruneAudit_DeletesOldEntries(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL))
	exec(t, pool, `insert into cuelight_audit (at, actor, action)
		select now() - interval '60 days', 'anna', 'pause' from generate_series(1, 1200)`)
	if err := operators.WriteAudit(t.Context(), pool, operators.AuditEntry{Actor: "anna", Action: "resume"}); err != nil {
		t.Fatal(err)
	}
	n, err := operators.PruneAudit(t.Context(), pool, 30*24*time.Hour)
	left, listErr := operators.Audits(t.Context(), pool, 0, 0)
	if err := errors.Join(err, listErr); err != nil || n != 1200 || len(left) != 1 || left[0].Action != "resume" {
		t.Errorf("%d entries are deleted, left are %+v: %v", n, left, err)
	}
}
