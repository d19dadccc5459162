package store

import (
	"testing"
	"time"
)

func TestMigrate_LetsAnAutovacuumMakeWayAfterHalfItsTime(t *testing.T) {
	t.Parallel()
	const deadlockTimeout = time.Second // of the server; then a lock's waiter ends an autovacuum
	if w := lockWait(migrateTimeout/2 - 1); w > deadlockTimeout/2 {
		t.Errorf("others wait for %v at first", w)
	}
	if w := lockWait(migrateTimeout / 2); w <= deadlockTimeout || w > 2*time.Second-migrateRetryDelay/2 {
		t.Errorf("others wait for %v later", w)
	}
}
