package store

// A made-up migration, for tests of the mechanism: tables of the version before lack a column.
func init() {
	migrations = append(migrations, migration{SchemaVersion, "alter table {tasks} add column color text not null default 'red';"})
}
