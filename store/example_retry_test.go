package store_test

import (
	"context"
	"fmt"

	"github.com/cuelight/cuelight/store"
)

// A retry does a task again, from a stage on. Its results are replaced, and claims of these stages are revoked.
func ExampleStore_Retry() {
	st, _, drop := exampleStore()
	defer drop()
	ctx := context.Background()
	receipt, err := st.Submit(ctx, store.Submission{Source: "episode-1.wav"})
	if err != nil {
		panic(err)
	}
	fmt.Println(st.Cancel(ctx, receipt.ID))
	fmt.Println(st.Retry(ctx, receipt.ID, "fetch"))
	task, err := st.Get(ctx, receipt.ID)
	fmt.Println(task.Status, err)
	fmt.Println(st.Retry(ctx, receipt.ID, "publish"))
	// Output:
	// <nil>
	// <nil>
	// pending <nil>
	// retry: no such stage: "publish"
}
