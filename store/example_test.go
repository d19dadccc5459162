package store_test

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
)

// exampleStore is the Store of a pipeline in an empty database.
func exampleStore() (st *store.Store, pool *pgxpool.Pool, drop func()) {
	pool, drop = pgtest.Example(pgtest.Schema{})
	graph, err := store.NewGraph("podcast", store.Node{Name: "fetch"}, store.Node{Name: "mix", Needs: []string{"fetch"}})
	if err != nil {
		panic(err)
	}
	st = store.New(pool, graph)
	if _, err := st.Migrate(context.Background()); err != nil {
		panic(err)
	}
	return st, pool, drop
}
