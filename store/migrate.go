package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight"
)

// steps bring older tables up to date: steps[0] makes version 2 of version 1,
// and so on.
var steps = [SchemaVersion - 1]func(Graph) string{
	func(Graph) string { return sessionsSQL },
	func(g Graph) string { return g.render("id") + fill(fewerConditionsSQL, g.words()) },
	func(g Graph) string {
		return fill(eventsColumnsSQL, g.words()) + g.render("shared") + g.render("place") + g.render("outbox")
	},
	func(g Graph) string {
		return g.render("cluster") + fill(version5SQL, g.words()) + g.render("place") + g.render("outbox")
	},
}

// Version 2 notices the end of a worker by the end of its session. The table
// is shared by all pipelines of a schema, so the columns may be there already.
const sessionsSQL = `
/* add sessions to workers */
alter table workers
  add column if not exists lease   interval not null default '36 s',
  add column if not exists session bigint,
  add column if not exists place   text     not null default ''`

// Version 3 has one trigger for what changes instead of one per stage, and a
// shorter constraint: PostgreSQL reads the text of either for every statement,
// and so it did that of the function which makes ids.
const fewerConditionsSQL = `
/* have fewer conditions */
{{- range .Stages}}
drop trigger if exists {{$.Tasks}}_{{.Name}}_wake_insert on {{$.Tasks}};
drop trigger if exists {{$.Tasks}}_{{.Name}}_wake on {{$.Tasks}};
{{- end}}
drop trigger if exists {{.Tasks}}_recall on {{.Tasks}};
drop function if exists {{.Function "recall"}}();
do $$ begin drop function if exists cuelight_wake();
exception when dependent_objects_still_exist then null; -- another pipeline here is older still
end $$;
alter table {{.Tasks}}
  drop constraint if exists {{.Tasks}}_overridden_rests,
  add constraint {{.Tasks}}_overridden_rests check
    (overridden_by is null or overridden_by <> id and
     not array[{{.Each "" "_status"}}] && '{pending,inprogress,failed}')`

// Version 4 tells what happens in an outbox. What is shared by all pipelines of a
// schema may be there already.
const eventsColumnsSQL = `
/* tell of events */
alter table cuelight_schema add column if not exists forgotten bigint not null default 0;
alter table workers add column if not exists drain_at timestamptz;
alter table {{.Tasks}} add column if not exists traceparent text, add column if not exists ready_at timestamptz;
create index if not exists {{.Attempts}}_finished on {{.Attempts}} using brin (finished_at);
`

// Version 5 changes the tables for what testing from outside found. Triggers and
// functions are made anew by every migration; this is what else is new.
//
// Transactions that are open lock the order of events in the way of before, which
// nobody looks for any more: they are waited for.
const version5SQL = `
/* version 5 */
alter table {{.Tasks}} add column if not exists submitted_by text;
drop index if exists {{.Tasks}}_request;
create unique index {{.Tasks}}_request on {{.Tasks}} (request_id, (coalesce(submitted_by, ''))) where request_id is not null;
lock table {{.Outbox}} in exclusive mode;
alter table workers add column if not exists registered_in text;
alter table cuelight_uncrashed alter column cluster set default cuelight_cluster();
alter table {{.Tasks}} add column if not exists scheduled_at timestamptz, drop constraint {{.Tasks}}_overridden_by_fkey,
  add constraint {{.Tasks}}_overridden_by_fkey foreign key (overridden_by) references {{.Tasks}} (id) on delete set null deferrable;
drop index if exists {{.Tasks}}_dead;
create index {{.Tasks}}_dead on {{.Tasks}} (id) include (overridden_by) where {{.Any "" "dead"}};
create index if not exists {{.Tasks}}_by_status on {{.Tasks}} ({{.WaitsFor ""}}, {{.Furthest ""}}, id) where {{.HasStatusIndex ""}};
create index if not exists {{.Tasks}}_user on {{.Tasks}} (user_id, id) where user_id is not null;
`

// The tables are looked for in the schema they would be made in, and not in
// whatever else is in the search_path.
const schemaSQL = `
/* is there a schema */
select to_regclass(format('%I.cuelight_schema', current_schema())) is not null`

const versionSQL = `
/* schema version */
select version, shape from cuelight_schema where pipeline = $1`

// Check compares the tables with what this package needs, and changes
// nothing. It returns [ErrNoSchema], [ErrSchemaOlder], [ErrSchemaNewer],
// [ErrSchemaShape] or [ErrSchemaBroken].
func (s *Store) Check(ctx context.Context) error {
	version, err := s.version(ctx)
	if err == nil && version < SchemaVersion {
		err = fmt.Errorf("%w: version %d, needed is %d", ErrSchemaOlder, version, SchemaVersion)
	}
	if err != nil {
		return fmt.Errorf("check tables of pipeline %s: %w", s.graph.name, err)
	}
	return nil
}

// version is the version of the tables, where nothing speaks against working
// with them or bringing them up to date.
func (s *Store) version(ctx context.Context) (int, error) {
	var there bool
	if err := s.db.QueryRow(ctx, schemaSQL).Scan(&there); err != nil {
		return 0, err
	}
	if !there {
		return 0, ErrNoSchema
	}
	var version int
	var shape string
	err := s.db.QueryRow(ctx, versionSQL, s.graph.name).Scan(&version, &shape)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, ErrNoSchema
	case err != nil:
		return 0, s.explain("read version", err)
	case version > SchemaVersion:
		return version, fmt.Errorf("%w: version %d, this program knows %d", ErrSchemaNewer, version, SchemaVersion)
	case shape != s.graph.String():
		return version, fmt.Errorf("%w: the database has %q, the program %q", ErrSchemaShape, shape, s.graph.String())
	}
	return version, nil
}

const migrateLockSQL = `
/* lock migrations */
select pg_advisory_xact_lock(hashtext('cuelight migrate'))`

const migratedSQL = `
/* schema is up to date */
update cuelight_schema set version = $2, applied_at = now() where pipeline = $1`

// Migrate makes the pipeline's tables, or brings older ones up to date, in one
// transaction; any number of processes may call it at once. Tables that are up
// to date are left alone. It returns [ErrSchemaNewer] or [ErrSchemaShape]
// where that cannot be done, having changed nothing.
//
// It reports the version it found, 0 for no tables.
func (s *Store) Migrate(ctx context.Context) (from int, err error) {
	for range migrateTries {
		// Whoever is at work locks the tables in another order.
		if from, err = s.migrate(ctx); !Again(err) {
			break
		}
	}
	if err != nil {
		return from, fmt.Errorf("migrate pipeline %s: %w", s.graph.name, err)
	}
	return from, nil
}

// migrateTries bounds how often Migrate begins anew.
const migrateTries = 5

func (s *Store) migrate(ctx context.Context) (from int, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, migrateLockSQL); err != nil {
			return err
		}
		from, err = s.WithTx(tx).version(ctx)
		if err != nil && !errors.Is(err, ErrNoSchema) {
			return err
		}
		if from == SchemaVersion {
			return nil
		}
		if err := execAll(ctx, tx, s.graph.migration(from)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, migratedSQL, s.graph.name, SchemaVersion)
		return err
	})
	return from, err
}

// migration is what Migrate runs on tables of the given version, 0 for none.
func (g Graph) migration(from int) []string {
	schema, triggers := g.SchemaSQL(), g.TriggersSQL()
	if g.name == "video" && g.String() == Video().String() {
		schema, triggers = cuelight.Schema, cuelight.Triggers
	}
	if from == 0 {
		return []string{schema, triggers}
	}
	var sql []string
	for _, step := range steps[from-1:] {
		sql = append(sql, step(g))
	}
	return append(sql, triggers)
}

// execAll runs whole files, which hold many statements, and for that the
// simple protocol. For psql each file is a transaction; here all are one.
func execAll(ctx context.Context, tx pgx.Tx, files []string) error {
	for _, sql := range files {
		sql = strings.Replace(strings.Replace(sql, "\nbegin;\n", "\n", 1), "\ncommit;\n", "\n", 1)
		if _, err := tx.Conn().PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			return err
		}
	}
	return nil
}
