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

func (e *example) Helper()             {}
func (e *example) Cleanup(f func())    { e.cleanups = append(e.cleanups, f) }
func (e *example) Failed() bool        { return false }
func (e *example) Logf(string, ...any) {}

func (e *example) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (e *example) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (e *example) Skipf(format string, args ...any)  { panic(fmt.Sprintf(format, args...)) }

func (e *example) cleanUp() {
	for _, f := range slices.Backward(e.cleanups) {
		f()
	}
}
