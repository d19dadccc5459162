package dbconn

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/usererr"
)

func TestPreferPrimary_SelectsTheWritableHost(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"postgres://u@one/db":                                        false,
		"postgres://u@one/db?sslmode=prefer":                         false, // two ways to one server
		"postgres://u@one,two/db":                                    true,
		"postgres://u@one:5432,one:5433/db?sslmode=disable":          true,
		"postgres://u@one/db?target_session_attrs=read-write":        true,
		"host=one,two dbname=db target_session_attrs=prefer-standby": true, // the address decides
	} {
		config, err := pgxpool.ParseConfig(address)
		if err != nil {
			t.Fatal(err)
		}
		preferPrimary(config.ConnConfig)
		if got := config.ConnConfig.ValidateConnect != nil; got != want {
			t.Errorf("%s: a check is made: %t, want %t", address, got, want)
		}
	}
}

func TestConnect_ReadsAChangedPasswordFile(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, pgtest.ServerOptions{})
	admin, file := server.Pool("postgres"), filepath.Join(t.TempDir(), "pgpass")
	change := func(password string) {
		t.Helper()
		_, err := admin.Exec(t.Context(), "alter role worker password '"+password+"'")
		if err == nil {
			err = os.WriteFile(file, []byte("*:*:*:worker:"+password+"\n"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := admin.Exec(t.Context(), `
		create role worker login;
		do $$ begin execute format('copy (values (''local all worker scram-sha-256''), (''local all all trust'')) to %L',
			current_setting('hba_file')); end $$`)
	if err != nil {
		t.Fatal(err)
	}
	server.Restart(pgtest.Fast)
	admin.Reset()
	change("first")
	address := fmt.Sprintf("host=%s port=%d user=worker dbname=postgres passfile=%s",
		admin.Config().ConnConfig.Host, admin.Config().ConnConfig.Port, file)
	db, err := (&Options{DatabaseURL: address}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for _, password := range []string{"first", "second"} {
		change(password)
		db.Pool.Reset()
		if err := db.Pool.Ping(t.Context()); err != nil {
			t.Errorf("with the %s password: %v", password, err)
		}
	}
}

func TestConnect_NamesAnEncodingThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, pgtest.ServerOptions{})
	_, err := server.Pool("postgres").Exec(t.Context(), "create database latin encoding 'LATIN1' locale 'C' template template0")
	if err != nil {
		t.Fatal(err)
	}
	db, err := (&Options{DatabaseURL: server.URL("latin")}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	_, inspectErr := db.Inspect(t.Context())
	for _, err := range []error{inspectErr, db.EnsureTables(t.Context())} {
		if e := Explain(db.WithName(err)); e.Kind != usererr.Schema ||
			!strings.HasPrefix(e.Text, "the encoding of the database is LATIN1, but UTF8 is needed") {
			t.Errorf("the error is %+v", e)
		}
	}
}

// The role's settings are for other work.
func TestConnect_SetsWhatOthersChose(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, pgtest.ServerOptions{})
	_, err := server.Pool("postgres").Exec(t.Context(), `
		alter role all set default_transaction_isolation = 'serializable';
		alter role all set client_encoding = 'LATIN1'`)
	if err != nil {
		t.Fatal(err)
	}
	db, err := (&Options{DatabaseURL: server.URL("postgres")}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := db.CheckTables(t.Context()); err != nil {
		t.Error(err)
	}
}
