package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const countMatchingSQL = `
/* count what retry all takes */
select count(*) from {{.Tasks}} t where ` + retryable

// CountRetries counts the tasks that [Store.RetryAll] with the same arguments
// would do again.
func (s *Store) CountRetries(ctx context.Context, f Filter, from string) (n int, err error) {
	for _, stage := range []string{from, f.Stage} {
		if _, ok := s.graph.Stage(stage); stage != "" && !ok {
			return 0, fmt.Errorf("count retries: %w: %q", ErrNoStage, stage)
		}
	}
	var stage *string
	if from != "" {
		stage = &from
	}
	sql := fill(countMatchingSQL, s.graph.words()) // for people, who ask seldom
	err = s.read(ctx, sql, append(f.args(s.graph), stage), func(rows pgx.Rows) (err error) {
		n, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
		return err
	})
	return n, s.explain("count retries", err)
}
