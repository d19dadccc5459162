package cuelight

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/bench/harness"
)

// sizeSQL has what the tasks' table takes, with the room in it that later rows
// will use; its indexes; the history, with its index; and the outbox, with its own.
const sizeSQL = `
select pg_table_size('tasks'), pg_indexes_size('tasks'), pg_total_relation_size('attempts'), pg_total_relation_size('outbox')`

// Sizes are how many bytes the tasks take, their indexes, their history and their events.
func (System) Sizes(ctx context.Context, url string) (of harness.Sizes, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return of, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err = conn.QueryRow(ctx, sizeSQL).Scan(&of.Tasks, &of.Indexes, &of.History, &of.Outbox); err != nil {
		err = fmt.Errorf("read sizes: %w", err)
	}
	return of, err
}
