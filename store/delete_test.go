package store_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestDelete_RevokesClaimsAndHidesTheTask(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id, w := b.submit(), b.worker()
	siblings := b.exchange(w, 1, []engine.Report{completed(b.claim(w, ingest))}).Claims
	notified := b.listen("cuelight_video")
	must(t, b.Delete(ctx, id, store.DeleteOptions{By: "anna", KeepPublished: true}))
	if len(notified()) == 0 {
		t.Error("workers were not notified")
	}
	if _, err := b.Get(ctx, id); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the deleted task is read: %v", err)
	}
	if lost, err := b.heartbeat(w, siblings...); err != nil || len(lost) != 2 {
		t.Errorf("the heartbeat reports %d lost claims, want 2: %v", len(lost), err)
	}
	out := b.exchange(w, 1, []engine.Report{completed(siblings[0])}, ingest, transcode, metadata)
	if len(out.Stale) != 1 || !out.Stale[0].Cancelled || len(out.Claims) != 0 {
		t.Errorf("a report of a deleted task was accepted: %+v", out)
	}
	if h := b.history(id); len(h) != 3 || h[1].Outcome != "cancelled" || h[2].Outcome != "cancelled" {
		t.Errorf("history is %+v, want both claims as cancelled", h)
	}
	d, err := b.GetDeleted(ctx, id)
	if err != nil || d.Source != "a.mp4" || d.DeletedBy != "anna" || !d.KeepPublished || d.PurgingAt != nil {
		t.Errorf("deleted task is %+v, %v", d, err)
	}
	if err := b.Delete(ctx, id, store.DeleteOptions{}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("deleting twice: %v", err)
	}
}

func TestDelete_NotifiesProcessesAlsoOfAFinishedTask(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	b.completeAll(w, b.claim(w, ingest))
	notified := b.listen("cuelight_video")
	must(t, b.Delete(t.Context(), id, store.DeleteOptions{}))
	if len(notified()) == 0 {
		t.Error("nobody was notified, so what is published stays")
	}
}

func TestUndelete_RestoresTheTaskWhereItWas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id, w := b.submitTask(store.Submission{Source: "a.mp4", Params: raw(`{"title": "A"}`), Priority: 3, UserID: "u"}), b.worker()
	siblings := b.exchange(w, 1, []engine.Report{completed(b.claim(w, ingest))}).Claims
	metadataClaim := siblings[slices.IndexFunc(siblings, func(c engine.Claim) bool { return c.Stage == metadata })]
	b.exchange(w, 1, []engine.Report{completed(metadataClaim)})
	before := b.get(id)
	must(t, b.Delete(ctx, id, store.DeleteOptions{}))
	must(t, b.Undelete(ctx, id, ""))
	after := b.get(id)
	b.wantStatuses(id, done, pending, done, pending, pending)
	if after.Priority != 3 || after.UserID != "u" || after.Title() != "A" || !after.CreatedAt.Equal(before.CreatedAt) {
		t.Errorf("restored task is %+v, want %+v", after, before)
	}
	claim := b.claim(w, transcode)
	if claim.Attempt != 1 {
		t.Errorf("the attempt has number %d, want 1: the interrupted one is not counted", claim.Attempt)
	}
	b.completeAll(w, claim)
	b.wantStatuses(id, done, done, done, done, done)

	must(t, b.Delete(ctx, id, store.DeleteOptions{}))
	must(t, b.Undelete(ctx, id, "assemble"))
	b.wantStatuses(id, done, done, done, pending, pending)
	b.completeAll(w, b.claim(w, assemble))
	if err := b.Undelete(ctx, id, ""); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("undelete of a task that is not deleted: %v", err)
	}
	if err := b.Undelete(ctx, id, "nothing"); !errors.Is(err, store.ErrNoStage) {
		t.Errorf("undelete from an unknown stage: %v", err)
	}
}

func TestUndelete_RestoresScheduledDividedAndDeadTasks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	scheduled := b.submitTask(store.Submission{Source: "later", NotBefore: at})
	must(t, b.Delete(ctx, scheduled, store.DeleteOptions{}))
	must(t, b.Undelete(ctx, scheduled, "publish"))
	if task := b.get(scheduled); task.Status != store.StatusScheduled || !task.Stages[0].RunAt.Equal(at) {
		t.Errorf("the scheduled task is %+v", task)
	}

	id, w := b.submit(), b.worker()
	siblings := b.exchange(w, 1, []engine.Report{completed(b.claim(w, ingest))}).Claims
	divide := completed(siblings[slices.IndexFunc(siblings, func(c engine.Claim) bool { return c.Stage == transcode })])
	divide.Outcome, divide.Parts = engine.Divided, []json.RawMessage{raw("1"), raw("2")}
	b.exchange(w, 1, []engine.Report{divide})
	must(t, b.Delete(ctx, id, store.DeleteOptions{}))
	if parts, err := b.Parts(ctx, id); err != nil || len(parts) != 0 {
		t.Errorf("the deleted task has parts: %v, %v", parts, err)
	}
	must(t, b.Undelete(ctx, id, ""))
	b.wantStatuses(id, done, divided, pending, pending, pending)
	if parts, err := b.Parts(ctx, id); err != nil || len(parts) != 2 {
		t.Errorf("the restored task has the parts %v, %v", parts, err)
	}

	b.exec("update tasks set metadata_status = 'dead' where id = $1", id)
	must(t, b.Delete(ctx, id, store.DeleteOptions{}))
	must(t, b.Undelete(ctx, id, "publish"))
	b.wantStatuses(id, done, divided, dead, pending, pending)
}

func TestUndelete_IsRefusedIfTheRequestIDIsTaken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id := b.submitTask(store.Submission{Source: "a", RequestID: "r"})
	must(t, b.Delete(ctx, id, store.DeleteOptions{}))
	b.submitTask(store.Submission{Source: "b", RequestID: "r"})
	if err := b.Undelete(ctx, id, ""); !errors.Is(err, store.ErrRequestIDTaken) {
		t.Errorf("undelete returned %v", err)
	}
	if _, err := b.GetDeleted(ctx, id); err != nil {
		t.Errorf("the deleted task is lost: %v", err)
	}
}

func TestDelete_FreesOverriddenTasks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	old := b.submit()
	by, err := b.Override(ctx, []store.ID{old}, store.Submission{Source: "better"})
	must(t, err)
	must(t, b.Delete(ctx, old, store.DeleteOptions{}))
	must(t, b.Undelete(ctx, old, ""))
	if task := b.get(old); task.OverriddenBy != by.ID {
		t.Errorf("the restored task is overridden by %s, want %s", task.OverriddenBy, by.ID)
	}
	must(t, b.Delete(ctx, old, store.DeleteOptions{}))
	must(t, b.Delete(ctx, by.ID, store.DeleteOptions{}))
	must(t, b.Undelete(ctx, old, ""))
	must(t, b.Retry(ctx, old, ""))
	b.wantStatuses(old, pending, pending, pending, pending, pending)
}

func TestDelete_IsRecordedAsEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id, w := b.submit(), b.worker()
	b.completeAll(w, b.claim(w, ingest))
	from, err := b.EventWatermark(ctx)
	must(t, err)
	must(t, b.Delete(ctx, id, store.DeleteOptions{By: "anna"}))
	must(t, b.Undelete(ctx, id, ""))
	must(t, b.Delete(ctx, id, store.DeleteOptions{Purge: true}))
	claimed, err := b.ClaimToPurge(ctx, -1)
	must(t, err)
	if len(claimed) != 1 || claimed[0].ID != id {
		t.Fatalf("claimed %+v to purge", claimed)
	}
	if err := b.Undelete(ctx, id, ""); !errors.Is(err, store.ErrPurging) {
		t.Errorf("undelete during a purge: %v", err)
	}
	must(t, b.Purge(ctx, id, ""))
	events, err := b.Events(ctx, store.EventQuery{After: from, Task: id})
	must(t, err)
	var types []store.EventType
	for _, e := range events {
		types = append(types, e.Type)
	}
	if want := []store.EventType{"deleted", "undeleted", "deleted", "purged"}; !slices.Equal(types, want) {
		t.Errorf("events are %q, want %q", types, want)
	}
	if got := string(events[0].Data); got != `{"deleted_by": "anna", "keep_published": false}` {
		t.Errorf("the event of the deletion has %s", got)
	}
	if h := b.history(id); len(h) != 0 {
		t.Errorf("the purged task has history: %+v", h)
	}
	if err := b.Undelete(ctx, id, ""); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("undelete after a purge: %v", err)
	}
}

func TestClaimToPurge_ReturnsATaskToOneProcess(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	recent, old := b.submit(), b.submit()
	for _, id := range []store.ID{recent, old} {
		must(t, b.Delete(ctx, id, store.DeleteOptions{}))
	}
	b.exec("update deleted_tasks set deleted_at = now() - interval '2 hours' where id = $1", old)
	for _, keep := range []time.Duration{-1, 3 * time.Hour} {
		if claimed, err := b.ClaimToPurge(ctx, keep); err != nil || len(claimed) > 0 {
			t.Errorf("kept for %s, claimed %+v, %v", keep, claimed, err)
		}
	}
	claimed, err := b.ClaimToPurge(ctx, time.Hour)
	if err != nil || len(claimed) != 1 || claimed[0].ID != old {
		t.Fatalf("claimed %+v, %v", claimed, err)
	}
	if again, err := b.ClaimToPurge(ctx, time.Hour); err != nil || len(again) > 0 {
		t.Errorf("claimed twice: %+v, %v", again, err)
	}
	b.exec("update deleted_tasks set claimed_until = now() - interval '1 s' where claimed_until is not null")
	if again, err := b.ClaimToPurge(ctx, -1); err != nil || len(again) > 0 {
		t.Errorf("claimed although deleted tasks are kept for ever: %+v, %v", again, err)
	}
	if again, err := b.ClaimToPurge(ctx, time.Hour); err != nil || len(again) != 1 {
		t.Errorf("after its process was lost, claimed %+v, %v", again, err)
	}
}

func TestClaimToUnpublish_KeepsUndeleteOutUntilItIsRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id, kept := b.submit(), b.submit()
	must(t, b.Delete(ctx, id, store.DeleteOptions{}))
	must(t, b.Delete(ctx, kept, store.DeleteOptions{KeepPublished: true}))
	claimed, err := b.ClaimToUnpublish(ctx)
	if err != nil || len(claimed) != 1 || claimed[0].ID != id {
		t.Fatalf("claimed %+v, %v", claimed, err)
	}
	if err := b.Undelete(ctx, id, ""); !errors.Is(err, store.ErrUnpublishing) {
		t.Errorf("undelete meanwhile: %v", err)
	}
	must(t, b.PostponeUnpublish(ctx, claimed[0]))
	for pass := 1; pass <= 2; pass++ { // once more, in case an attempt published meanwhile
		if early, err := b.ClaimToUnpublish(ctx); err != nil || len(early) > 0 {
			t.Errorf("before pass %d claimed %+v, %v", pass, early, err)
		}
		b.exec("update deleted_tasks set unpublish_at = now() where unpublish_at is not null")
		again, err := b.ClaimToUnpublish(ctx)
		if err != nil || len(again) != 1 {
			t.Fatalf("pass %d claimed %+v, %v", pass, again, err)
		}
		must(t, b.RecordUnpublished(ctx, claimed[0])) // an earlier claim
		if err := b.Undelete(ctx, id, ""); !errors.Is(err, store.ErrUnpublishing) {
			t.Errorf("after the record of an earlier claim: %v", err)
		}
		must(t, b.RecordUnpublished(ctx, again[0]))
	}
	b.exec("update deleted_tasks set unpublish_at = now() where unpublish_at is not null")
	if again, err := b.ClaimToUnpublish(ctx); err != nil || len(again) > 0 {
		t.Errorf("after both passes claimed %+v, %v", again, err)
	}
	must(t, b.Undelete(ctx, id, ""))
}

func TestUndelete_RepeatsLaterStagesWhateverTheirStatus(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	for _, status := range []string{"dead", "failed"} {
		id := b.submit()
		b.exec(`update tasks set ingest_status = 'completed', transcode_status = 'completed', metadata_status = 'completed',
		                         assemble_status = 'completed', publish_status = $2::cuelight_status where id = $1`, id, status)
		must(t, b.Delete(ctx, id, store.DeleteOptions{}))
		must(t, b.Undelete(ctx, id, "transcode"))
		b.wantStatuses(id, done, pending, done, pending, pending)
	}
}

func TestUndelete_LeavesOverriddenTasksCancelled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id, w := b.submit(), b.worker()
	b.completeAll(w, b.claim(w, ingest))
	_, err := b.Override(ctx, []store.ID{id}, store.Submission{Source: "better"})
	must(t, err)
	must(t, b.Delete(ctx, id, store.DeleteOptions{}))
	must(t, b.Undelete(ctx, id, "publish"))
	b.wantStatuses(id, done, done, done, done, cancelled)
}

func TestDelete_PurgesATaskThatWasDeletedBefore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id := b.submit()
	must(t, b.Delete(ctx, id, store.DeleteOptions{}))
	must(t, b.Delete(ctx, id, store.DeleteOptions{Purge: true}))
	if err := b.Undelete(ctx, id, ""); !errors.Is(err, store.ErrPurging) {
		t.Errorf("undelete returned %v", err)
	}
	if claimed, err := b.ClaimToPurge(ctx, -1); err != nil || len(claimed) != 1 {
		t.Errorf("claimed %+v, %v", claimed, err)
	}
}

func TestClaimToPurge_SaysWhetherAnotherTaskHasTheSource(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	for _, source := range []string{"s3://media/sources/request-1/a", "other"} {
		id := b.submitTask(store.Submission{Source: "s3://media/sources/request-1/a", RequestID: "r"})
		must(t, b.Delete(ctx, id, store.DeleteOptions{Purge: true}))
		other := b.submitTask(store.Submission{Source: source, RequestID: "r"})
		claimed, err := b.ClaimToPurge(ctx, -1)
		must(t, err)
		if want := source != "other"; len(claimed) != 1 || claimed[0].SourceInUse != want {
			t.Errorf("with a task of %s claimed %+v", source, claimed)
		}
		must(t, b.Purge(ctx, id, ""))
		b.exec("delete from tasks where id = $1", other)
	}
}

func TestPurge_RemembersRequestIDsWithAPrefix(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	past := store.DeleteOptions{Purge: true}
	for _, request := range []string{"inbox:1", "other", ""} {
		id := b.submitTask(store.Submission{Source: "a", RequestID: request})
		must(t, b.Delete(ctx, id, past))
		_, err := b.ClaimToPurge(ctx, -1)
		must(t, err)
		must(t, b.Purge(ctx, id, "inbox:"))
	}
	found, err := b.DeletedRequests(ctx, []string{"inbox:1", "other", "inbox:2"})
	if err != nil || !slices.Equal(found, []string{"inbox:1"}) {
		t.Errorf("known request ids are %q, %v", found, err)
	}
	if left, err := b.ListDeleted(ctx, store.DeletedQuery{}); err != nil || len(left) > 0 {
		t.Errorf("purged tasks are listed: %+v, %v", left, err)
	}
	if again, err := b.ClaimToPurge(ctx, 0); err != nil || len(again) > 0 {
		t.Errorf("a purged task is purged again: %+v, %v", again, err)
	}
}

func TestListDeleted_PagesFromTheLastDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	var ids []store.ID
	for _, user := range []string{"anna", "ben", "anna"} {
		ids = append(ids, b.submitTask(store.Submission{Source: "a", UserID: user}))
	}
	for _, id := range ids {
		must(t, b.Delete(ctx, id, store.DeleteOptions{}))
	}
	page := func(q store.DeletedQuery) (got []store.ID) {
		t.Helper()
		all, err := b.ListDeleted(ctx, q)
		must(t, err)
		for _, d := range all {
			got = append(got, d.ID)
		}
		return got
	}
	if got := page(store.DeletedQuery{Limit: 2}); !slices.Equal(got, []store.ID{ids[2], ids[1]}) {
		t.Errorf("the first page is %v", got)
	}
	if got := page(store.DeletedQuery{Limit: 2, After: ids[1]}); !slices.Equal(got, ids[:1]) {
		t.Errorf("the second page is %v", got)
	}
	if got := page(store.DeletedQuery{UserID: "anna"}); !slices.Equal(got, []store.ID{ids[2], ids[0]}) {
		t.Errorf("the page of one user is %v", got)
	}
	if got, err := b.FindDeleted(ctx, ids[0].String()[28:]); err != nil || got != ids[0] {
		t.Errorf("found %s, %v", got, err)
	}
}
