package standby

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
)

const addTask = "insert into tasks (source) values ('a')"

func TestRouter_SendsReadsToTheStandby(t *testing.T) {
	t.Parallel()
	f := setup(t, time.Hour)
	f.wantChanges(true)
	f.exec(f.primary, addTask)
	waittest.Until(t, "the standby has the task", func() bool { n, onStandby := f.count(); return n == 1 && onStandby })

	st := store.New(f.Router, store.Video())
	if page, err := st.Page(t.Context(), store.ListQuery{}); err != nil || len(page.Tasks) != 1 {
		t.Errorf("%+v, %v", page, err)
	}
	var onStandby bool
	tx, err := f.Begin(t.Context())
	if err == nil {
		err = tx.QueryRow(t.Context(), "select pg_is_in_recovery()").Scan(&onStandby)
	}
	if err != nil || !onStandby {
		t.Errorf("the transaction is on the standby: %v, %v", onStandby, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	// The session of a worker is a lock.
	var batch pgx.Batch
	batch.Queue("select pg_is_in_recovery(), count(*) from pg_locks").QueryRow(func(row pgx.Row) error {
		return row.Scan(&onStandby, nil)
	})
	if err := f.SendBatch(t.Context(), &batch).Close(); err != nil || onStandby {
		t.Errorf("locks are read from the standby: %v, %v", onStandby, err)
	}
	f.wantChanges(true)
}

func TestRouter_ShowsWhatWasRequired(t *testing.T) {
	t.Parallel()
	f := setup(t, time.Hour)
	f.Require(t.Context())
	waittest.Until(t, "the standby is used", func() bool { _, onStandby := f.count(); return onStandby })
	f.exec(f.standby, "select pg_wal_replay_pause()")
	f.exec(f.primary, addTask)
	if n, onStandby := f.count(); n != 0 || !onStandby { // nobody required it
		t.Errorf("%d tasks, on the standby %v", n, onStandby)
	}
	f.Require(t.Context())
	if n, onStandby := f.count(); n != 1 || onStandby {
		t.Errorf("%d tasks, on the standby %v", n, onStandby)
	}
	f.exec(f.standby, "select pg_wal_replay_resume()")
	waittest.Until(t, "the standby has the task", func() bool { n, onStandby := f.count(); return n == 1 && onStandby })
	f.wantChanges(true)
}

func TestRouter_UsesThePrimaryWhileTheStandbyIsBehind(t *testing.T) {
	t.Parallel()
	f := setup(t, 300*time.Millisecond)
	f.exec(f.standby, "select pg_wal_replay_pause()")
	f.exec(f.primary, addTask)
	waittest.Until(t, "the standby is behind", func() bool { return strings.HasSuffix(f.Status().Reason, " behind") })
	if n, onStandby := f.count(); n != 1 || onStandby || f.Status().Lag < 300*time.Millisecond {
		t.Errorf("%d tasks, on the standby %v, status %+v", n, onStandby, f.Status())
	}
	f.exec(f.standby, "select pg_wal_replay_resume()")
	f.waitFor("")
	if n, onStandby := f.count(); n != 1 || !onStandby {
		t.Errorf("%d tasks, on the standby %v", n, onStandby)
	}
	f.wantChanges(true, false, true)
}

func TestRouter_UsesThePrimaryWhileTheStandbyIsAway(t *testing.T) {
	t.Parallel()
	f := setup(t, time.Hour)
	for range 2 { // also where a connection exists that does not work any more
		f.exec(f.primary, addTask)
		f.server.Stop(pgtest.Immediate)
		for range 5 {
			if _, onStandby := f.count(); onStandby {
				t.Error("the read went to a server that is stopped")
			}
		}
		if reason := f.Status().Reason; !strings.HasPrefix(reason, "it cannot be read: ") {
			t.Errorf("the reason is %q", reason)
		}
		f.server.Start()
		f.waitFor("")
	}
	f.wantChanges(true, false, true, false, true)
}

func TestRouter_RefusesOtherServers(t *testing.T) {
	t.Parallel()
	f := setup(t, time.Hour)
	other := pgtest.NewServer(t, pgtest.ServerOptions{Durable: true})
	name := other.New(pgtest.SQL(store.Video().SchemaSQL(), store.Video().TriggersSQL())).Config().ConnConfig.Database
	for reason, r := range map[string]*Router{
		"it is not a standby":                 f.start(f.primary, 0),
		"it is a standby of another database": f.start(other.Standby().Pool(name), 0),
	} {
		waittest.Equal(t, "the reason", reason, func() string { return r.Status().Reason })
	}
	f.server.Promote()
	f.waitFor("it is not a standby")
	if _, onStandby := f.count(); onStandby {
		t.Error("the read went to a standby")
	}
}

// Where the position of the primary cannot be read, only the primary is right.
func TestRouter_UsesThePrimaryWhereThePositionIsUnknown(t *testing.T) {
	t.Parallel()
	f := setup(t, time.Hour)
	closed := New(Options{Primary: f.primary, Standby: f.standby, Position: f.server.Pool("postgres")})
	closed.set("", 0)
	closed.Require(t.Context()) // fails: that one is a standby
	if got := closed.choose(t.Context(), ""); got != f.primary {
		t.Error("the read goes to the standby")
	}
	closed.setRequired(0, 0) // asked for before the failure
	if got := closed.choose(t.Context(), ""); got != f.primary {
		t.Error("the read goes to the standby after an older position is known")
	}
	closed.setRequired(0, 1)
	if got := closed.choose(t.Context(), ""); got != f.standby {
		t.Error("the read goes to the primary")
	}
}

func TestHandler_LetsClientsReadTheirOwnWrites(t *testing.T) {
	t.Parallel()
	f := setup(t, time.Hour)
	f.exec(f.standby, "select pg_wal_replay_pause()")
	var within bool // the read in the request went to the standby
	server := httptest.NewServer(f.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			f.exec(f.primary, addTask)
			if err := f.QueryRow(r.Context(), "select pg_is_in_recovery()").Scan(&within); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusCreated)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			<-r.Context().Done() // the client goes on before the handler returns
			return
		}
		n, onStandby := f.count()
		fmt.Fprint(w, n, onStandby)
	})))
	defer server.Close()
	get := func() string {
		resp, err := http.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var n, onStandby string
		if _, err := fmt.Fscan(resp.Body, &n, &onStandby); err != nil {
			t.Fatal(err)
		}
		return n + " " + onStandby
	}
	if got := get(); got != "0 true" {
		t.Errorf("before: %s", got)
	}
	resp, err := http.Post(server.URL, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := get(); got != "1 false" || within {
		t.Errorf("after the write: %s; within the request on the standby %v", got, within)
	}
	_ = resp.Body.Close()
	f.exec(f.standby, "select pg_wal_replay_resume()")
	waittest.Equal(t, "the read", "1 true", get)
}

func TestHandler_LetsClientsReadTheEffectsOfEvents(t *testing.T) {
	t.Parallel()
	f := setup(t, time.Hour)
	f.exec(f.standby, "select pg_wal_replay_pause()")
	f.exec(f.primary, addTask)
	h := f.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "sent") }))
	for _, c := range []struct {
		path      string
		onStandby bool
	}{{"/api/v1/tasks", true}, {"/api/v1/events", false}} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, c.path, nil))
		if _, onStandby := f.count(); onStandby != c.onStandby {
			t.Errorf("after %s the read is on the standby: %v", c.path, onStandby)
		}
	}
}
