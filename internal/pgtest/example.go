package pgtest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Example is [New] for Example functions, which have no testing.TB. It panics where a
// test would fail. The function it returns closes the pool and drops the database.
func Example(s Schema) (pool *pgxpool.Pool, drop func()) {
	t := &example{}
	return New(t, s), t.cleanUp
}

// example is the testing.TB of an Example function. It has the methods that this package
// and pgtestdb use.
type example struct {
	testing.TB
	cleanups []func()
}

// Helper does nothing.
func (e *example) Helper() {}

// Cleanup adds a function for cleanUp.
func (e *example) Cleanup(f func()) { e.cleanups = append(e.cleanups, f) }

// Failed reports false, because a failure panics.
func (e *example) Failed() bool { return false }

// Logf drops the message, because the output of an Example function is compared.
func (e *example) Logf(string, ...any) {}

// Errorf panics with the message.
func (e *example) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Fatalf panics with the message.
func (e *example) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Skipf panics with the message.
func (e *example) Skipf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (e *example) cleanUp() {
	for _, f := range slices.Backward(e.cleanups) {
		f()
	}
}
