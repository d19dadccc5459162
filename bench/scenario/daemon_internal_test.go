package scenario

import "testing"

func TestCountStatements_IgnoresStatementContents(t *testing.T) {
	t.Parallel()
	const log = `2026-11-20 16:51:24.894 UTC [9378] LOG:  statement: -- ping
2026-11-20 16:51:24.895 UTC [9378] LOG:  execute stmtcache_2d55afc84fd2: 
	/* heartbeat */
	select '2026-11-20 LOG:  statement: not one'
2026-11-20 16:51:24.895 UTC [9378] DETAIL:  parameters: $1 = '36', $2 = NULL
2026-11-20 16:51:25.000 UTC [12] LOG:  checkpoint starting: time
2026-11-20 16:51:26.761 UTC [9378] ERROR:  canceling statement due to user request
2026-11-20 16:51:26.761 UTC [9378] STATEMENT:  select pg_sleep(1)
2026-11-20 16:51:27.000 UTC [9378] LOG:  execute <unnamed>: select 1
`
	if got := countStatements([]byte(log)); got != 3 {
		t.Errorf("%d statements, want 3", got)
	}
	if got := countStatements(nil); got != 0 {
		t.Errorf("%d statements in an empty log", got)
	}
}
