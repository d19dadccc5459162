package store_test

import (
	"context"
	"fmt"

	"github.com/cuelight/cuelight/store"
)

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
