package dbconn

import "testing"

// Daemons prune the events of a shared database. Only commands prune those of a private
// one.
func TestEventRetention_KeepsEventsOfSharedDatabases(t *testing.T) {
	t.Parallel()
	for address, none := range map[string]bool{"postgres://u@one/db": true, "private": false, "": false} {
		if got := (&Options{DatabaseURL: address}).Target().EventRetention(); got < 0 != none || got > 0 {
			t.Errorf("%q: they are kept for %s", address, got)
		}
	}
}

func TestSource_FollowsTheOrderOfTheHelp(t *testing.T) {
	t.Parallel()
	all := Environment{"DATABASE_URL=postgres://d/", "PGHOST=/tmp", "PGUSER=u"}
	for _, c := range []struct {
		flag string
		env  Environment
		want Target
	}{
		{"postgres://f/", all, Target{Address: "postgres://f/", Origin: "cuelight.yaml:3"}},
		{"private", all, Target{Private: true, Origin: "cuelight.yaml:3"}},
		{"", all, Target{Address: "postgres://d/", Origin: "DATABASE_URL"}},
		{"", all[1:], Target{Origin: "PGHOST"}},
		{"", Environment{"PGSERVICE=s"}, Target{Origin: "PGSERVICE"}},
		{"", Environment{"PGDATABASE=d"}, Target{Origin: "PGDATABASE"}},
		{"", all[2:], Target{Private: true, Origin: "no other database is configured"}},
	} {
		if got := (&Options{DatabaseURL: c.flag, DatabaseOrigin: "cuelight.yaml:3", Env: c.env}).Target(); got != c.want {
			t.Errorf("%q with %v: %+v, want %+v", c.flag, c.env, got, c.want)
		}
	}
}

func TestRedactedURL_HasNoPassword(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"postgres://u:secret@h:5433/d?application_name=x": "postgres://u@h:5433/d",
		"host=/run/pg user=u password=secret dbname=d":    "postgres://u@/d?host=/run/pg",
		"postgres://u:secret@[::1]/d":                     "postgres://u@[::1]/d",
	} {
		config, err := Target{Address: in}.config()
		if err != nil {
			t.Fatal(err)
		}
		if got := redactedURL(config); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}
