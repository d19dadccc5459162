package stages_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// In session mode a client keeps its session, as behind a proxy that pins sessions.
func TestRunner_WorksThroughPgBouncer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode     string
		isDirect bool  // the listener bypasses the pooler
		want     error // of the listener
	}{
		"transaction mode":                        {"transaction", false, notify.ErrPooled},
		"transaction mode with a direct listener": {"transaction", true, nil},
		"session mode":                            {"session", false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct := setup(t,
				stages.Stage{Name: "square", Divide: numbered(3), Part: square, Work: sum},
				stages.Stage{Name: "end", Needs: []string{"square"}, Work: noop})
			_, through := pgtest.NewBouncer(t, direct.pool, c.mode)
			b := newBundle(t, through, direct.pipeline).withPool(func(config *pgxpool.Config) {
				config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
			})
			changes := make(chan error, 100)
			o := notify.Options{Channels: b.pipeline.Channels(), OnChange: func(_ bool, err error) { changes <- err }}
			if c.isDirect {
				o.ConnConfig = direct.pool.Config().ConnConfig
			}
			r := b.start(func(r *stages.Runner) { r.Wakes = notify.New(b.pool, o) })
			if err := <-changes; !errors.Is(err, c.want) {
				t.Errorf("the listener reported %v, want %v", err, c.want)
			}
			var ids []store.ID
			for range 3 {
				ids = append(ids, b.submit())
			}
			for range ids {
				for r.wait(t, stages.StageCompleted).Stage != "end" {
				}
			}
			for _, id := range ids {
				if s := b.task(id).Status; s != store.StatusCompleted {
					t.Errorf("a task is %s", s)
				}
			}
			r.stop()
			if events, err := b.Events(t.Context(), store.EventQuery{}); err != nil || events[len(events)-1].Type != store.WorkerStopped {
				t.Errorf("events end with %+v, %v", events, err)
			}
		})
	}
}
