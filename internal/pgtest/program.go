package pgtest

import (
	"os"
	"testing"

	"github.com/cuelight/cuelight/internal/postgres"
)

// Program is the path of one of PostgreSQL's programs besides the server, such as
// pg_dump. It skips the test where $CUELIGHT_PG_BIN names an installation without it.
func Program(t testing.TB, name string) string {
	t.Helper()
	installations, err := postgres.Find()
	if err != nil {
		skipOrFail(t, err)
	}
	path := installations[0].Path(name)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv(postgres.BinEnv) == "" {
			t.Fatal(err)
		}
		t.Skipf("%s has no %s", postgres.BinEnv, name)
	}
	return path
}
