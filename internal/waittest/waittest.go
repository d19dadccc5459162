// Package waittest waits, in tests, for conditions that nothing announces: a file
// that another process writes, a row, the state of a server.
//
//	waittest.Until(t, "the worker is registered", func() bool { return isRegistered(id) })
//	waittest.Equal(t, "the number of workers", 4, countWorkers)
//
// A test that can wait for a channel does that instead. Tests under
// testing/synctest do not need this package: their clock waits by itself.
package waittest

import (
	"testing"
	"time"
)

// Limit is how long Until and Equal wait. It is long because the machine may be busy with
// many tests; a test that passes never waits that long.
const Limit = 3 * time.Minute

const pollInterval = 5 * time.Millisecond

// Until polls until the condition is true. It fails the test, which it must be
// called from, when that takes longer than [Limit]; the text describes the
// condition: "the queue is empty".
func Until(t testing.TB, condition string, isTrue func() bool) {
	t.Helper()
	Within(t, Limit, condition, isTrue)
}

// Within is Until with another limit, for work that takes longer.
func Within(t testing.TB, limit time.Duration, condition string, isTrue func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !isTrue(); time.Sleep(pollInterval) {
		if time.Now().After(deadline) {
			t.Fatalf("not true within %v: %s", limit, condition)
		}
	}
}

// Equal is Until for a value, which the failure of the test shows: it polls until get
// returns want.
func Equal[T comparable](t testing.TB, name string, want T, get func() T) {
	t.Helper()
	got := get()
	for deadline := time.Now().Add(Limit); got != want; got = get() {
		if time.Now().After(deadline) {
			t.Fatalf("after %v %s is %v, want %v", Limit, name, got, want)
		}
		time.Sleep(pollInterval)
	}
}
