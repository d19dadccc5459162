package store_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
)

// exampleStore is the Store of a pipeline in an empty database.
func exampleStore() (st *store.Store, pool *pgxpool.Pool, drop func()) {
	pool, drop = pgtest.Example(pgtest.Schema{})
	graph, err := store.NewGraph("podcast", store.Node{Name: "fetch"}, store.Node{Name: "mix", Needs: []string{"fetch"}})
	if err != nil {
		panic(err)
	}
	st = store.New(pool, graph)
	if _, err := st.Migrate(context.Background()); err != nil {
		panic(err)
	}
	return st, pool, drop
}

// A submission joins the caller's transaction: the task exists exactly when the caller's own
// changes do.
func ExampleStore_Submit() {
	st, pool, drop := exampleStore()
	defer drop()
	ctx := context.Background()
	submit := func(failure error) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			// … insert into episodes …
			if _, err := st.WithTx(tx).Submit(ctx, store.Submission{Source: "episode-1.wav"}); err != nil {
				return err
			}
			return failure
		})
	}
	fmt.Println(submit(errors.New("disk full")), submit(nil))
	tasks, err := st.List(ctx, store.ListQuery{})
	fmt.Println(len(tasks), err)
	// Output:
	// disk full <nil>
	// 1 <nil>
}

// A second submission with the same request id returns the first task.
func ExampleSubmission_requestID() {
	st, _, drop := exampleStore()
	defer drop()
	for range 2 {
		receipt, err := st.Submit(context.Background(), store.Submission{Source: "episode-1.wav", RequestID: "upload-17"})
		fmt.Println(receipt.Existed, err)
	}
	// Output:
	// false <nil>
	// true <nil>
}

// A scheduled task starts at its time.
func ExampleSubmission_notBefore() {
	st, _, drop := exampleStore()
	defer drop()
	ctx := context.Background()
	receipt, err := st.Submit(ctx, store.Submission{Source: "episode-1.wav", NotBefore: time.Now().Add(time.Hour)})
	if err != nil {
		panic(err)
	}
	task, err := st.Get(ctx, receipt.ID)
	fmt.Println(task.Status, err)
	// Output: scheduled <nil>
}

// SubmitAll adds many tasks in one round trip.
func ExampleStore_SubmitAll() {
	st, _, drop := exampleStore()
	defer drop()
	submissions := make([]store.Submission, 1000)
	for i := range submissions {
		submissions[i] = store.Submission{Source: fmt.Sprintf("episode-%d.wav", i), Priority: -1}
	}
	receipts, err := st.SubmitAll(context.Background(), submissions)
	fmt.Println(len(receipts), err)
	// Output: 1000 <nil>
}

// A reader that remembers the id of the last event misses none.
func ExampleStore_Events() {
	st, _, drop := exampleStore()
	defer drop()
	ctx := context.Background()
	last, err := st.EventWatermark(ctx)
	if err != nil {
		panic(err)
	}
	receipt, err := st.Submit(ctx, store.Submission{Source: "episode-1.wav"})
	if err != nil {
		panic(err)
	}
	if err := st.Cancel(ctx, receipt.ID); err != nil {
		panic(err)
	}
	events, err := st.Events(ctx, store.EventQuery{After: last})
	for _, e := range events {
		fmt.Println(e.Type, e.Task == receipt.ID)
		last = e.ID
	}
	fmt.Println(err)
	// Output:
	// submitted true
	// cancelled true
	// <nil>
}

// A pause stops claims of a stage, a host, or everything, until it is resumed.
func ExampleStore_Pause() {
	st, _, drop := exampleStore()
	defer drop()
	ctx := context.Background()
	if err := st.Pause(ctx, store.Pause{Stage: "mix", By: "jo"}); err != nil {
		panic(err)
	}
	pauses, err := st.Pauses(ctx)
	fmt.Println(pauses[0].Stage, err)
	fmt.Println(st.Resume(ctx, store.Pause{Stage: "mix"}))
	// Output:
	// mix <nil>
	// true <nil>
}
