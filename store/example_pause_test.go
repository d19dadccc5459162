package store_test

import (
	"context"
	"fmt"

	"github.com/cuelight/cuelight/store"
)

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
