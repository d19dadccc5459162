package store_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

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
