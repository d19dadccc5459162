package store_test

import (
	"context"
	"fmt"
	"time"

	"github.com/cuelight/cuelight/store"
)

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
