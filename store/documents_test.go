package store_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/pgtest"
)

// The SQL of the documents is what users type into psql.
func TestDocuments_HaveSQLThatRuns(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../docs/*.md")
	must(t, err)
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```")
	roles := regexp.MustCompile("to (submitter|reader);") // which do not exist
	operators, err := os.ReadFile("../internal/operators/operators.sql")
	must(t, err)
	n := 0
	for _, file := range append(files, "../README.md") {
		text, err := os.ReadFile(file)
		must(t, err)
		for _, block := range blocks.FindAllSubmatch(text, -1) {
			n++
			pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, string(operators), `
				insert into tasks (source) values ('a.mp4');
				select setval('outbox_id', 1000000)`)) // events of the documents exist
			sql := roles.ReplaceAllString(string(block[1]), "to public;")
			if _, err := pool.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Errorf("%s: %v\n%s", file, err, sql)
			}
		}
	}
	if n < 5 {
		t.Errorf("found %d blocks of SQL", n)
	}
}
