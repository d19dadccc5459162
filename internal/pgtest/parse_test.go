package pgtest

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestParse_KeepsTheAddress(t *testing.T) {
	t.Parallel()
	for _, given := range []string{
		"postgres://me:secret@db.example:5433/work?sslmode=require&application_name=a%20b",
		"postgres://m%40e:p%2F%3A%3Fw@[::1]/work?connect_timeout=7&sslmode=disable",
		"postgres://me@/work?host=/a%20b/c&port=6000",
		"host=/tmp/x user=me dbname=work port=6001",
	} {
		want, err := pgx.ParseConfig(given)
		if err != nil {
			t.Fatal(err)
		}
		conf, err := parse(given)
		if err != nil {
			t.Fatal(err)
		}
		got, err := pgx.ParseConfig(conf.URL())
		if err != nil {
			t.Fatalf("%s became %s: %v", given, conf.URL(), err)
		}
		if got.Host != want.Host || got.Port != want.Port || got.User != want.User ||
			got.Password != want.Password || got.Database != want.Database ||
			got.ConnectTimeout != want.ConnectTimeout || (got.TLSConfig == nil) != (want.TLSConfig == nil) ||
			got.RuntimeParams["application_name"] != want.RuntimeParams["application_name"] {
			t.Errorf("%s became %s", given, conf.URL())
		}
	}
}
