package invariant

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/jackc/pgx/v5"
)

// Querier is what [Sessions] needs of a database.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

const sessionsSQL = `
select format('process %s, %s since %s: %s', pid, coalesce(state, 'starting'), state_change, left(query, 100))
  from pg_stat_activity
 where backend_type = 'client backend'
   and datname = current_database()
   and starts_with(application_name, $1)
   and pid <> pg_backend_pid()
 order by pid`

// Sessions lists the sessions of this database whose application_name begins with the prefix,
// except the one that asks. The other sessions of a pool that asks are listed too, unless it has
// another name.
func Sessions(ctx context.Context, db Querier, prefix string) ([]string, error) {
	rows, err := db.Query(ctx, sessionsSQL, prefix)
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	return found, nil
}

// Files lists the files and directories below the given directories whose names match one of the
// patterns of [filepath.Match]. Directories that do not exist have none.
func Files(patterns []string, dirs ...string) ([]string, error) {
	var found []string
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			for _, pattern := range patterns {
				matches, matchErr := filepath.Match(pattern, filepath.Base(path))
				if err = errors.Join(err, matchErr); matches {
					found = append(found, path)
					break
				}
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list leftover files in %s: %w", dir, err)
		}
	}
	return found, nil
}
