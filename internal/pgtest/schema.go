package pgtest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/peterldowns/pgtestdb"
)

// Schema is the content of a database at the beginning of a test. The zero Schema is
// empty.
type Schema struct {
	key   string
	apply func(context.Context, *pgx.Conn) error
}

// SQL is a schema of scripts, which run in order.
func SQL(texts ...string) Schema {
	sum := sha256.New()
	for _, text := range texts {
		fmt.Fprintf(sum, "%d\n%s", len(text), text)
	}
	return Schema{
		key: hex.EncodeToString(sum.Sum(nil)),
		apply: func(ctx context.Context, conn *pgx.Conn) error {
			for _, text := range texts {
				if _, err := conn.Exec(ctx, text); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// Func is a schema that apply creates in an empty database. Two schemas with the same
// key count as the same, so only one apply runs.
func Func(key string, apply func(context.Context, *pgx.Conn) error) Schema {
	return Schema{key: "func " + key, apply: apply}
}

// Hash makes, with Migrate, a Schema a [pgtestdb.Migrator].
func (s Schema) Hash() (string, error) { return "pgtest " + s.key, nil }

// Migrate creates the schema. pgtestdb calls it once for a template.
func (s Schema) Migrate(ctx context.Context, db *sql.DB, _ pgtestdb.Config) error {
	if s.apply == nil {
		return nil
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(c any) error { return s.apply(ctx, c.(*stdlib.Conn).Conn()) })
}
