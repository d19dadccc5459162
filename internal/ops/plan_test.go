package ops

import (
	"testing"

	"github.com/cuelight/cuelight/internal/plantest"
	"github.com/cuelight/cuelight/store"
)

func TestCountRefused_UsesIndexesInALongHistory(t *testing.T) {
	t.Parallel()
	conn := plantest.LargeDatabase(t)
	plantest.WantIndexes(t, conn, "count refused", store.Video().SQL(countRefusedSQL), plantest.Nulls(3),
		"attempts_refused", "workers_pkey")
}
