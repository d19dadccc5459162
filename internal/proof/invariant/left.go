package invariant

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/jackc/pgx/v5"
)

// Querier is what [Connections] needs of a database.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

const connectionsSQL = `
select format('process %s, %s since %s: %s', pid, coalesce(state, 'starting'), state_change, left(query, 100))
  from pg_stat_activity
 where backend_type = 'client backend'
   and datname = current_database()
   and starts_with(application_name, $1)
   and pid <> pg_backend_pid()
 order by pid`

// Connections lists the sessions in this database whose application_name
// begins with the prefix, but for the one that asks. A pool that must not count
// itself has another name.
func Connections(ctx context.Context, db Querier, prefix string) ([]string, error) {
	rows, err := db.Query(ctx, connectionsSQL, prefix)
	if err != nil {
		return nil, fmt.Errorf("list connections: %w", err)
	}
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list connections: %w", err)
	}
	return left, nil
}

// Files lists the files and directories anywhere below the directories whose
// names match one of the patterns, as [filepath.Match] has them. What is
// removed meanwhile, or was never there, is not left over.
func Files(patterns []string, dirs ...string) ([]string, error) {
	var left []string
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			for _, p := range patterns {
				matches, err := filepath.Match(p, d.Name())
				if err != nil {
					return err
				}
				if matches {
					left = append(left, path)
					break
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("look for files left in %s: %w", dir, err)
		}
	}
	return left, nil
}
