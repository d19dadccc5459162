package store_test

import (
	"context"
	"fmt"

	"github.com/cuelight/cuelight/store"
)

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
