package dbconn

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
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
