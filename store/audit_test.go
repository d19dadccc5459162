package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestAudits_ReturnsPagesNewestFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 5 {
		e := store.AuditEntry{
			Actor: "admin", Action: "retry", Target: fmt.Sprint(i), Detail: json.RawMessage(`{"from":"a\u0000b"}`),
		}
		if err := b.WithAudit(t.Context(), func(*store.Store) (store.AuditEntry, error) { return e, nil }); err != nil {
			t.Fatal(err)
		}
	}
	var seen []string
	var after int64
	for {
		page, err := b.Audits(t.Context(), after, 2)
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

func TestWithAudit_CommitsActionAndEntryTogether(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit()
	failure := errors.New("failed")
	err := b.WithAudit(t.Context(), func(in *store.Store) (store.AuditEntry, error) {
		if err := in.Cancel(t.Context(), id); err != nil {
			return store.AuditEntry{}, err
		}
		return store.AuditEntry{}, failure
	})
	if !errors.Is(err, failure) || b.get(id).Status != pending {
		t.Errorf("after an error the task is %s: %v", b.get(id).Status, err)
	}
	err = b.WithAudit(t.Context(), func(in *store.Store) (store.AuditEntry, error) {
		return store.AuditEntry{Actor: "x", Action: "cancel", Detail: json.RawMessage(`no JSON`)}, in.Cancel(t.Context(), id)
	})
	if err == nil || b.get(id).Status != pending {
		t.Errorf("the task was cancelled without an audit entry: %v", err)
	}
	err = b.WithAudit(t.Context(), func(in *store.Store) (store.AuditEntry, error) {
		return store.AuditEntry{Actor: "x", Action: "cancel"}, in.Cancel(t.Context(), id)
	})
	if err != nil || b.get(id).Status != cancelled {
		t.Errorf("the task is %s: %v", b.get(id).Status, err)
	}
	err = b.WithAudit(t.Context(), func(*store.Store) (store.AuditEntry, error) { return store.AuditEntry{}, nil })
	if entries, _ := b.Audits(t.Context(), 0, 0); err != nil || len(entries) != 1 {
		t.Errorf("entries are %+v, %v", entries, err)
	}
}

func TestWithAudit_RetriesAfterDeadlocks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	attempts := 0
	err := b.WithAudit(t.Context(), func(*store.Store) (store.AuditEntry, error) {
		if attempts++; attempts < 3 {
			return store.AuditEntry{}, &pgconn.PgError{Code: "40P01"}
		}
		return store.AuditEntry{Action: "x"}, nil
	})
	if err != nil || attempts != 3 {
		t.Errorf("after %d attempts: %v", attempts, err)
	}
	attempts = 0
	err = b.WithAudit(t.Context(), func(*store.Store) (store.AuditEntry, error) {
		attempts++
		return store.AuditEntry{}, &pgconn.PgError{Code: "40001"}
	})
	if !store.IsRetryable(err) || attempts > 10 {
		t.Errorf("after %d attempts: %v", attempts, err)
	}
}

func TestCountRetries_AgreesWithRetryAll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	for i := range 6 {
		b.submitTask(store.Submission{Source: fmt.Sprint("v", i), UserID: fmt.Sprint("u", i%2)})
	}
	for i, c := range b.exchange(w, 4, nil, ingest).Claims {
		r := failed(c, 0)
		r.Dead = i < 3
		b.exchange(w, 0, []engine.Report{r})
	}
	for _, c := range []struct {
		f    store.Filter
		from string
	}{
		{store.Filter{Status: dead}, ""},
		{store.Filter{Status: dead, UserID: "u0"}, ""},
		{store.Filter{}, ""},
		{store.Filter{UserID: "u1"}, "ingest"},
		{store.Filter{Source: "nowhere"}, ""},
	} {
		n, err := b.CountRetries(t.Context(), c.f, c.from)
		if err != nil {
			t.Fatal(err)
		}
		rollBack := errors.New("roll back")
		err = b.WithAudit(t.Context(), func(in *store.Store) (store.AuditEntry, error) {
			r, err := in.RetryAll(t.Context(), c.f, c.from, store.RetryAllOptions{})
			if err != nil || r.Retried != n || r.Matched != n {
				t.Errorf("%+v from %q: CountRetries returned %d, RetryAll %+v, %v", c.f, c.from, n, r, err)
			}
			return store.AuditEntry{}, rollBack
		})
		if !errors.Is(err, rollBack) {
			t.Fatal(err)
		}
	}
	for _, stages := range [][2]string{{"nonsense", ""}, {"", "nonsense"}} {
		_, err := b.CountRetries(t.Context(), store.Filter{Stage: stages[0]}, stages[1])
		if !errors.Is(err, store.ErrNoStage) {
			t.Errorf("%v: %v", stages, err)
		}
	}
}

func TestEventWatermark_StaysBehindOpenTransactions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	read := func() (watermark, allocated int64) {
		t.Helper()
		watermark, err1 := b.EventWatermark(t.Context())
		allocated, err2 := b.LastAllocatedEvent(t.Context())
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		return watermark, allocated
	}
	if watermark, allocated := read(); watermark != allocated {
		t.Errorf("without events: watermark %d, allocated %d", watermark, allocated)
	}
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.WithTx(tx).Submit(t.Context(), store.Submission{Source: "open"}); err != nil {
		t.Fatal(err)
	}
	b.submit()
	watermark, allocated := read()
	if watermark >= allocated {
		t.Errorf("with an open transaction: watermark %d, allocated %d", watermark, allocated)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if watermark, _ := read(); watermark < allocated {
		t.Errorf("after the commit: watermark %d, want at least %d", watermark, allocated)
	}
}
