package main

import (
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/internal/waittest"
)

// Watch ends when nothing more will happen to the task, and not before.
func TestWatchEvents_EndsWithTheTask(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	conn := p.connect()
	for name, c := range map[string]struct {
		code  int
		steps []string
		last  string
	}{
		"deleted": {exitCodeOf[usererr.NotFound], []string{"delete from tasks where id = $1"}, "deleted"},
		"replaced": {exitFailure, []string{`with other as (insert into tasks (source) values ('/films/two.mp4') returning id)
update tasks set overridden_by = (select id from other), ingest_status = 'cancelled', transcode_status = 'cancelled',
       metadata_status = 'cancelled', assemble_status = 'cancelled', publish_status = 'cancelled'
where id = $1`}, "cancelled"},
		"one stage dead while another runs": {exitFailure, []string{
			"update tasks set ingest_status = 'completed' where id = $1",
			"update tasks set transcode_status = 'dead' where id = $1",
			"update tasks set metadata_status = 'completed' where id = $1",
		}, "metadata"},
		"two stages dead, one of them retried": {exitFailure, []string{
			"update tasks set ingest_status = 'completed' where id = $1",
			"update tasks set metadata_status = 'dead' where id = $1",
			"update tasks set metadata_status = 'pending' where id = $1",
			"update tasks set transcode_status = 'dead' where id = $1",
			"update tasks set metadata_status = 'completed' where id = $1",
		}, "metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &workDir{t: t, dir: p.dir, env: p.env}
			id := ask[string](t, conn, "insert into tasks (source) values ('/films/one.mp4') returning id::text")
			waittest.Until(p.t, "no other session is open", func() bool { return ask[int](t, conn, sessionsSQL) == 0 })
			r := p.start("watch", "--events", id)
			// The first session reads past events, the second one listens.
			waittest.Until(p.t, "the watch listens", func() bool { return ask[int](t, conn, sessionsSQL) > 1 })
			for _, step := range c.steps {
				if _, err := conn.Exec(t.Context(), step, id); err != nil {
					t.Fatal(err)
				}
			}
			r.end(c.code)
			lines := strings.Split(strings.TrimSpace(r.stdout.String()), "\n")
			if last := lines[len(lines)-1]; !strings.Contains(last, c.last) {
				t.Errorf("the last line is %q, want one with %s", last, c.last)
			}
		})
	}
}

const sessionsSQL = `
select count(*) from pg_stat_activity
where datname = current_database() and application_name = 'cuelight'`
