package store_test

import (
	"context"
	"fmt"

	"github.com/cuelight/cuelight/store"
)

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
