package store_test

import (
	"context"
	"fmt"

	"github.com/cuelight/cuelight/store"
)

// Tasks of higher priority come first, then users take turns. A change applies to the stages that have not started.
func ExampleStore_ChangePriority() {
	st, _, drop := exampleStore()
	defer drop()
	ctx := context.Background()
	receipt, err := st.Submit(ctx, store.Submission{Source: "episode-1.wav", UserID: "jo"})
	if err != nil {
		panic(err)
	}
	fmt.Println(st.ChangePriority(ctx, []store.ID{receipt.ID}, 0, 10))
	task, err := st.Get(ctx, receipt.ID)
	fmt.Println(task.Priority, err)
	// Output:
	// <nil>
	// 10 <nil>
}
