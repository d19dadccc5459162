// Package operators creates the tables that the program cuelight has in addition to those of its pipeline: the audit
// log, captions, API keys, webhooks and their deliveries, profiles, locations, and leases. It writes, reads and prunes the audit
// log; of the other tables, the packages that use one have its statements.
//
// [Migrate] needs the pipeline's tables; see [store.Store.Migrate]. Programs that embed package store need neither.
package operators

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/statement"
	"github.com/cuelight/cuelight/store"
)

// SQL is operators.sql. Loading it again changes nothing.
//
//go:embed operators.sql
var SQL string

const missingSQL = `
/* find missing tables of operators */
select (select count(*) from pg_class c
         where c.relnamespace = quote_ident(current_schema())::regnamespace and c.relkind in ('r', 'i')
           and c.relname in ('cuelight_audit', 'cuelight_automatic_captions', 'cuelight_captions', 'cuelight_captions_chapters',
                             'cuelight_keys', 'cuelight_leases', 'cuelight_locations', 'cuelight_profiles', 'cuelight_webhooks',
                             'cuelight_deliveries', 'cuelight_alert_cooldowns')) < 11
    or (select count(*) from pg_trigger t join pg_class c on c.oid = t.tgrelid
         where c.relnamespace = quote_ident(current_schema())::regnamespace
           and t.tgname in ('cuelight_keys_notify', 'cuelight_webhooks_notify')) < 2`

// Check returns [store.ErrNoSchema] if a table or trigger, or the index of chapters, is missing.
func Check(ctx context.Context, db store.DB) error {
	var missing bool
	err := db.QueryRow(ctx, missingSQL).Scan(&missing)
	if err == nil && missing {
		err = store.ErrNoSchema
	}
	return statement.Wrap(db, "check tables of operators", err)
}

const lockSQL = `/* lock migrations */ select pg_advisory_xact_lock(hashtext('cuelight migrate'))`

// Migrate creates what is missing, in one transaction. Any number of processes may call it at once.
func Migrate(ctx context.Context, db store.DB) error {
	// Loading the triggers locks their tables, so it does nothing where nothing is missing.
	if Check(ctx, db) == nil {
		return nil
	}
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockSQL); err != nil {
			return err
		}
		// It is a transaction for psql; here it is part of tx.
		sql := strings.NewReplacer("\nbegin;\n", "\n", "\ncommit;\n", "\n").Replace(SQL)
		_, err := tx.Conn().PgConn().Exec(ctx, sql).ReadAll()
		return err
	})
	if err != nil {
		return fmt.Errorf("migrate tables of operators: %w", err)
	}
	return nil
}
