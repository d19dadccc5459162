package store_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/store"
)

// Work that a dump found in progress was not given up by a worker of where it is restored:
// it is free again there, and no attempt is used up.
func TestRestore_FreesWhatWasInProgressAndCountsNoAttempt(t *testing.T) {
	t.Parallel()
	g := store.Video()
	here, elsewhere := pgtest.NewServer(t, pgtest.ServerOptions{}), pgtest.NewServer(t, pgtest.ServerOptions{})
	pool := here.New(pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	b := newBundle(t, pool, g)
	id, w := b.submit(), b.worker()
	b.claim(w, ingest)
	dump := client(t, "pg_dump", "", pool.Config().ConnString())
	for name, server := range map[string]*pgtest.Server{"in the same cluster": here, "in another cluster": elsewhere} {
		t.Run(name, func(t *testing.T) {
			restored := server.New(pgtest.Schema{})
			client(t, "psql", dump, restored.Config().ConnString(), "-q", "-v", "ON_ERROR_STOP=1")
			r := newBundle(t, restored, g)
			must(t, r.Check(t.Context()))
			r.silent(w, "1 minute")
			if lost := r.lost(nil); len(lost) != 1 || lost[0] != w {
				t.Errorf("given up are %v", lost)
			}
			r.want(id, pending, pending, pending, pending, pending)
			if h := r.history(id); len(h) != 1 || h[0].Outcome != "released" || !strings.Contains(h[0].Error, "restored from") {
				t.Errorf("history is %+v", h)
			}
			if c := r.claim(r.worker(), ingest); c.Task != id || c.Attempt != 1 {
				t.Errorf("claimed is %+v", c)
			}
			wantTold(t, r.events(0), "submitted", "started ingest", "released ingest", "started ingest")
		})
	}
	// Where it is at home, a worker that goes away uses up an attempt.
	b.silent(w, "1 minute")
	b.lost(nil)
	b.want(id, failing, pending, pending, pending, pending)
}

// client runs a program of PostgreSQL's against an address, and gives back what it wrote.
func client(t *testing.T, program, input, address string, args ...string) string {
	t.Helper()
	all, err := postgres.Find("")
	must(t, err)
	cmd := exec.CommandContext(t.Context(), all[0].Path(program), append(args, "-d", address)...)
	cmd.Stdin = strings.NewReader(input)
	var wrong strings.Builder
	cmd.Stderr = &wrong
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", program, err, wrong.String())
	}
	return string(out)
}
