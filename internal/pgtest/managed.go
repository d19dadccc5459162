package pgtest

import (
	"net/url"

	"github.com/jackc/pgx/v5/pgxpool"
)

// managedSQL creates a role as the customer of a strict managed service gets it, and refuses
// the functions that describe or control the server, of which PostgreSQL itself refuses
// some and allows others.
const managedSQL = `
create role managed login;
alter role managed set search_path = managed;
alter role managed set statement_timeout = '5s';
create schema managed authorization managed;
revoke create on schema public from public;
do $$
declare f regprocedure;
begin
  execute format('revoke temporary on database %I from public', current_database());
  for f in
    select oid from pg_proc where pronamespace = 'pg_catalog'::regnamespace and proname ~ ('^pg_(control_|postmaster_|conf_|'
      || 'terminate_|cancel_|reload_|rotate_|read_|stat_file|ls_|current_wal|current_logfile|last_wal|wal|switch_wal|'
      || 'tablespace_size|database_size|export_snapshot|log_|hba_|show_all_file|config|stat_get_(wal|archiver|bgwriter))')
  loop
    execute format('revoke execute on function %s from public', f);
  end loop;
end
$$`

// NewManaged creates a database as a strict managed service would, and returns a pool of
// connections of a role that owns an empty schema there and nothing else. Its statements
// are limited to 5 s, and it may neither ask the server about itself nor end sessions.
func (s *Server) NewManaged() *pgxpool.Pool {
	s.t.Helper()
	address, err := url.Parse(s.New(SQL(managedSQL)).Config().ConnString())
	s.must(err)
	address.User = url.User("managed")
	return open(s.t, address.String())
}
