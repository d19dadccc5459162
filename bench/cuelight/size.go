package cuelight

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// sizeSQL has what the tasks' table takes, with the room in it that later rows
// will use; its indexes; and the history, with its index.
const sizeSQL = `
select pg_table_size('tasks'), pg_indexes_size('tasks'), pg_total_relation_size('attempts')`

// Sizes are how many bytes the tasks, their indexes and their history take.
func (Contestant) Sizes(ctx context.Context, url string) (table, index, history int64, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, 0, 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err = conn.QueryRow(ctx, sizeSQL).Scan(&table, &index, &history); err != nil {
		err = fmt.Errorf("read sizes: %w", err)
	}
	return table, index, history, err
}
