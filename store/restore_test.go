package store_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
)

// Claims in a restored dump belong to workers of another database: they are released, and
// do not count as attempts.
func TestRestore_ReleasesClaimsAndCountsNoAttempt(t *testing.T) {
	t.Parallel()
	g := store.Video()
	sameServer, otherServer := pgtest.NewServer(t, pgtest.ServerOptions{}), pgtest.NewServer(t, pgtest.ServerOptions{})
	pool := sameServer.New(pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	b := newBundle(t, pool, g)
	id, w := b.submit(), b.worker()
	b.claim(w, ingest)
	dump := runClient(t, "pg_dump", "", pool.Config().ConnString())
	for name, server := range map[string]*pgtest.Server{
		"in the same cluster": sameServer, "in another cluster": otherServer,
	} {
		t.Run(name, func(t *testing.T) {
			restored := server.New(pgtest.Schema{})
			runClient(t, "psql", dump, restored.Config().ConnString(), "-q", "-v", "ON_ERROR_STOP=1")
			r := newBundle(t, restored, g)
			must(t, r.Check(t.Context()))
			r.setLastHeartbeat(w, "1 minute")
			if lost := r.sweepExpired(nil); len(lost) != 1 || lost[0] != w {
				t.Errorf("expired workers are %v", lost)
			}
			r.wantStatuses(id, pending, pending, pending, pending, pending)
			if h := r.history(id); len(h) != 1 || h[0].Outcome != "released" || !strings.Contains(h[0].Error, "restored from") {
				t.Errorf("history is %+v", h)
			}
			if c := r.claim(r.worker(), ingest); c.Task != id || c.Attempt != 1 {
				t.Errorf("the claim is %+v", c)
			}
			wantEvents(t, r.events(0), "submitted", "started ingest", "released ingest", "started ingest")
		})
	}
	// In the original database the lost claim counts as an attempt.
	b.setLastHeartbeat(w, "1 minute")
	b.sweepExpired(nil)
	b.wantStatuses(id, failing, pending, pending, pending, pending)
}

// runClient runs a program of PostgreSQL with a database address, and returns its output.
func runClient(t *testing.T, program, input, address string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), pgtest.Program(t, program), append(args, "-d", address)...)
	cmd.Stdin = strings.NewReader(input)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", program, err, stderr.String())
	}
	return string(out)
}
