package store_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

func TestSubmit_UsesTheCallersTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	notified := b.listen("cuelight_video_ingest")
	rollBack := errors.New("roll back")
	var id store.ID
	err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		r, err := b.WithTx(tx).Submit(ctx, store.Submission{Source: "a"})
		id = r.ID
		return errors.Join(err, rollBack)
	})
	if !errors.Is(err, rollBack) {
		t.Fatal(err)
	}
	if _, err := b.Get(ctx, id); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a submission that was rolled back exists: %v", err)
	}
	if got := notified(); len(got) != 0 {
		t.Errorf("it caused notifications: %v", got)
	}
}

func TestSubmit_SameRequestIDReturnsTheFirstTask(t *testing.T) {
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

func TestRequestID_RejectsAnotherSource(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, err := b.Submit(t.Context(), store.Submission{Source: "a", RequestID: "r1"})
	must(t, err)
	if got, err := b.Submit(t.Context(), store.Submission{
		Source: "b", RequestID: "r1",
	}); !errors.Is(err, store.ErrRequestIDTaken) || got.ID != first.ID {
		t.Errorf("Submit returned %+v, %v", got, err)
	}
	got, err := b.SubmitAll(t.Context(),
		[]store.Submission{{Source: "c", RequestID: "r2"}, {Source: "b", RequestID: "r1"}})
	if !errors.Is(err, store.ErrRequestIDTaken) || got[1].ID != first.ID || b.get(got[0].ID).Source != "c" {
		t.Errorf("SubmitAll returned %+v, %v", got, err)
	}
	if source := b.get(first.ID).Source; source != "a" {
		t.Errorf("the first task's source became %q", source)
	}
}

func TestRequestID_IsPerSubmitter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	seen := make(map[store.ID]bool)
	for _, by := range []string{"", "key aaaaaaaa (x)", "key bbbbbbbb (x)"} {
		sub := store.Submission{Source: "from " + by, RequestID: "r1", SubmittedBy: by}
		first, err := b.Submit(t.Context(), sub)
		must(t, err)
		many, err := b.SubmitAll(t.Context(), []store.Submission{sub})
		must(t, err)
		if first.Existed || seen[first.ID] || !many[0].Existed || many[0].ID != first.ID ||
			b.get(first.ID).SubmittedBy != by {
			t.Errorf("submitted by %q: %+v, then %+v", by, first, many)
		}
		seen[first.ID] = true
	}
}

func TestSubmitAll_ConcurrentRequestsCreateOneTask(t *testing.T) {
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
			own := subs
			if i%2 == 1 {
				own = reversed
			}
			receipts, err := b.SubmitAll(context.Background(), own)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = make(map[string]store.ID)
			for j, r := range receipts {
				ids[i][own[j].RequestID] = r.ID
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

func TestSubmitAll_KeepsTheOrder(t *testing.T) {
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
	for i, c := range b.exchange(w, 5, nil, ingest).Claims {
		if c.Task != receipts[i].ID || c.Source != fmt.Sprint(i) {
			t.Errorf("claim %d is of source %s", i, c.Source)
		}
	}
}

func TestSubmitAll_StoresTheSameAsSubmit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := store.Submission{
		Source: "a", Params: raw(`{"title": "t"}`), Priority: 7, RequestID: "alone", UserID: "u",
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		NotBefore:   time.Now().Add(time.Hour).Truncate(time.Second),
	}
	single := b.submitTask(sub)
	sub.RequestID = "among"
	many, err := b.SubmitAll(t.Context(), []store.Submission{{Source: "b"}, sub})
	if err != nil {
		t.Fatal(err)
	}
	row := func(id store.ID) string {
		var text string
		err := b.DB().QueryRow(t.Context(),
			"select (to_jsonb(t) - '{id,request_id,created_at,updated_at,turn}'::text[])::text from tasks t where id = $1", id).Scan(&text)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if a, b := row(single), row(many[1].ID); a != b || !strings.Contains(a, sub.Traceparent) || !strings.Contains(a, `"priority": 7`) {
		t.Errorf("the tasks are\n%s\n%s", a, b)
	}
	if got := b.get(single); got.RequestID != "alone" || got.UserID != "u" {
		t.Errorf("%+v", got)
	}
}

func TestSubmit_NotBeforeDelaysTheClaim(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submitTask(store.Submission{Source: "later", NotBefore: time.Now().Add(time.Hour)})
	past := b.submitTask(store.Submission{Source: "past", NotBefore: time.Now().Add(-time.Hour)})
	out := b.exchange(w, 5, nil, ingest)
	if len(out.Claims) != 1 || out.Claims[0].Task != past {
		t.Errorf("claims are %+v, want only the task that is due", out.Claims)
	}
	if n := out.NextDue; n < 59*time.Minute || n > time.Hour {
		t.Errorf("NextDue is %s, want an hour", n)
	}
}

func TestSubmit_RejectsInvalidSubmissions(t *testing.T) {
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
		"year 10000":       {Source: "a", NotBefore: time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -3600))},
		"before Christ":    {Source: "a", NotBefore: time.Date(-43, 3, 15, 0, 0, 0, 0, time.UTC)},
		"long user":        {Source: "a", UserID: noise(2049)},
		"long request id":  {Source: "a", RequestID: noise(2049)},
		"long submitter":   {Source: "a", SubmittedBy: noise(513)},
	} {
		if _, err := b.Submit(t.Context(), sub); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: error is %v, want ErrInvalid", name, err)
		}
	}
}

// Random text, because an index compresses its entries.
func noise(bytes int) string {
	text := make([]byte, bytes/2)
	_, _ = rand.Read(text)
	return hex.EncodeToString(text) + strings.Repeat("x", bytes%2)
}

func TestSubmit_StoresTheLongestIndexedTexts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.submitTask(store.Submission{Source: "a", UserID: noise(2048), RequestID: noise(2048), SubmittedBy: noise(512)})
}
