package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

func TestSubmitJoinsTheCallersTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	heard := b.listen("cuelight_video_ingest")
	rolledBack := errors.New("changed my mind")
	var id store.ID
	err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		r, err := b.WithTx(tx).Submit(ctx, store.Submission{Source: "a"})
		id = r.ID
		return errors.Join(err, rolledBack)
	})
	if !errors.Is(err, rolledBack) {
		t.Fatal(err)
	}
	if _, err := b.Get(ctx, id); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a submission that was rolled back is there: %v", err)
	}
	if got := heard(); len(got) != 0 {
		t.Errorf("somebody was woken for it: %v", got)
	}
}

func TestSubmitWithTheSameRequestIDReturnsTheFirstTask(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, err := b.Submit(t.Context(), store.Submission{Source: "a", RequestID: "r1"})
	if err != nil || first.Existed {
		t.Fatal(first, err)
	}
	second, err := b.Submit(t.Context(), store.Submission{Source: "a", Priority: 9, RequestID: "r1"})
	if err != nil || !second.Existed || second.ID != first.ID {
		t.Errorf("second submit returned %+v, %v; want the first task", second, err)
	}
	if got := b.get(first.ID).Priority; got != 0 {
		t.Errorf("the first task's priority became %d", got)
	}
	many, err := b.SubmitAll(t.Context(), []store.Submission{
		{Source: "c", RequestID: "r2"}, {Source: "d"}, {Source: "c", RequestID: "r2"}, {Source: "a", RequestID: "r1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if many[0].Existed || many[1].Existed || !many[2].Existed || many[2].ID != many[0].ID || many[3].ID != first.ID {
		t.Errorf("receipts are %+v", many)
	}
}

func TestRequestID_OfAnotherSourceIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, err := b.Submit(t.Context(), store.Submission{Source: "a", RequestID: "r1"})
	must(t, err)
	if got, err := b.Submit(t.Context(), store.Submission{Source: "b", RequestID: "r1"}); !errors.Is(err, store.ErrRequestTaken) || got.ID != first.ID {
		t.Errorf("another source got %+v, %v", got, err)
	}
	got, err := b.SubmitAll(t.Context(), []store.Submission{{Source: "c", RequestID: "r2"}, {Source: "b", RequestID: "r1"}})
	if !errors.Is(err, store.ErrRequestTaken) || got[1].ID != first.ID || b.get(got[0].ID).Source != "c" {
		t.Errorf("among others it got %+v, %v", got, err)
	}
	if source := b.get(first.ID).Source; source != "a" {
		t.Errorf("the first task's source became %q", source)
	}
}

func TestRequestID_IsOfItsSubmitter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	seen := make(map[store.ID]bool)
	for _, by := range []string{"", "key aaaaaaaa (x)", "key bbbbbbbb (x)"} {
		sub := store.Submission{Source: "of " + by, RequestID: "r1", SubmittedBy: by}
		first, err := b.Submit(t.Context(), sub)
		must(t, err)
		many, err := b.SubmitAll(t.Context(), []store.Submission{sub})
		must(t, err)
		if first.Existed || seen[first.ID] || !many[0].Existed || many[0].ID != first.ID || b.get(first.ID).SubmittedBy != by {
			t.Errorf("of %q: %+v, then %+v", by, first, many)
		}
		seen[first.ID] = true
	}
}

func TestConcurrentSubmitsOfOneRequestMakeOneTask(t *testing.T) {
	t.Parallel()
	b := setup(t)
	subs := make([]store.Submission, 50)
	for i := range subs {
		subs[i] = store.Submission{Source: "a", RequestID: fmt.Sprint("r", i)}
	}
	reversed := make([]store.Submission, len(subs))
	for i := range subs {
		reversed[len(subs)-1-i] = subs[i]
	}
	var wg sync.WaitGroup
	ids := make([]map[string]store.ID, 8)
	for i := range ids {
		wg.Go(func() {
			mine := subs
			if i%2 == 1 {
				mine = reversed
			}
			receipts, err := b.SubmitAll(context.Background(), mine)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = make(map[string]store.ID)
			for j, r := range receipts {
				ids[i][mine[j].RequestID] = r.ID
			}
		})
	}
	wg.Wait()
	for i := range ids {
		for request, id := range ids[i] {
			if id != ids[0][request] {
				t.Fatalf("request %s is task %s for one caller and %s for another", request, id, ids[0][request])
			}
		}
	}
}

func TestBulkSubmitKeepsTheOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	subs := make([]store.Submission, 5000)
	for i := range subs {
		subs[i].Source = fmt.Sprint(i)
	}
	receipts, err := b.SubmitAll(t.Context(), subs)
	if err != nil {
		t.Fatal(err)
	}
	w := b.worker()
	for i, c := range b.turn(w, 5, nil, ingest).Claims {
		if c.Task != receipts[i].ID || c.Source != fmt.Sprint(i) {
			t.Errorf("claim %d is of source %s", i, c.Source)
		}
	}
}

func TestTaskIsTheSameSubmittedAloneAndAmongOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := store.Submission{
		Source: "a", Params: raw(`{"title": "t"}`), Priority: 7, RequestID: "alone", UserID: "u",
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", NotBefore: time.Now().Add(time.Hour).Truncate(time.Second),
	}
	alone := b.submission(sub)
	sub.RequestID = "among"
	among, err := b.SubmitAll(t.Context(), []store.Submission{{Source: "b"}, sub})
	if err != nil {
		t.Fatal(err)
	}
	row := func(id store.ID) string {
		var text string
		if err := b.DB().QueryRow(t.Context(), "select (to_jsonb(t) - '{id,request_id,created_at}'::text[])::text from tasks t where id = $1", id).Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	if one, other := row(alone), row(among[1].ID); one != other || !strings.Contains(one, sub.Traceparent) || !strings.Contains(one, `"priority": 7`) {
		t.Errorf("the tasks are\n%s\n%s", one, other)
	}
	if got := b.get(alone); got.RequestID != "alone" || got.UserID != "u" {
		t.Errorf("%+v", got)
	}
}

func TestTaskDoesNotStartBeforeItsTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submission(store.Submission{Source: "later", NotBefore: time.Now().Add(time.Hour)})
	past := b.submission(store.Submission{Source: "past", NotBefore: time.Now().Add(-time.Hour)})
	out := b.turn(w, 5, nil, ingest)
	if len(out.Claims) != 1 || out.Claims[0].Task != past {
		t.Errorf("claims are %+v, want only the task whose time has come", out.Claims)
	}
	if n := out.NextDue[ingest]; n < 59*time.Minute || n > time.Hour {
		t.Errorf("next time is in %s, want an hour", n)
	}
}

func TestSubmitRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, sub := range map[string]store.Submission{
		"no source":        {},
		"not JSON":         {Source: "a", Params: raw(`{"a":`)},
		"not an object":    {Source: "a", Params: raw(`[1]`)},
		"NUL in params":    {Source: "a", Params: raw(`{"a": "\u0000"}`)},
		"half a character": {Source: "a", Params: raw(`{"a": "\ud800"}`)},
		"endless number":   {Source: "a", Params: raw(`{"a": 1e999999}`)},
		"not UTF-8":        {Source: "a\xff"},
		"NUL in a source":  {Source: "a\x00b"},
	} {
		if _, err := b.Submit(t.Context(), sub); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: error is %v, want ErrInvalid", name, err)
		}
	}
}
