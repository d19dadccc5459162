package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/storage/s3test"
	"github.com/cuelight/cuelight/internal/waittest"
)

// farm is a coordinator that leaves transcode and metadata to remote workers, and these workers.
// Each has a scratch directory of its own and no address of the database.
type farm struct {
	h           environment
	pool        *pgxpool.Pool
	address     string
	env         []string // of the coordinator
	workerEnv   []string
	keyFile     string
	coordinator *daemon
	workers     []*daemon
}

func newFarm(t *testing.T, workers int, env ...string) *farm {
	t.Helper()
	h := newEnvironment(t)
	f := &farm{h: h, pool: h.newDatabase(), address: freeAddress(t), env: env}
	f.keyFile = filepath.Join(t.TempDir(), "key")
	cmd := h.command("keys", "create", "farm", "--scope", "work")
	cmd.Env = append(cmd.Env, "CUELIGHT_DATABASE_URL="+f.pool.Config().ConnString())
	key, err := cmd.Output()
	if err == nil {
		err = os.WriteFile(f.keyFile, key, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.startCoordinator()
	f.addWorkers(workers)
	return f
}

func (f *farm) addWorkers(n int) {
	f.h.t.Helper()
	for range n {
		f.workers = append(f.workers, nil)
		f.startWorker(len(f.workers) - 1)
	}
}

// freeAddress returns an address on which nothing listens. A restarted coordinator uses it again.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (f *farm) startCoordinator() {
	f.h.t.Helper()
	f.coordinator = f.h.serveWith(f.env, f.pool, "--listen", f.address, "--slots", "transcode=0,metadata=0")
	waittest.Until(f.h.t, "the coordinator listens", func() bool {
		conn, err := net.Dial("tcp", f.address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

func (f *farm) startWorker(i int) {
	f.h.t.Helper()
	scratch := filepath.Join(filepath.Dir(f.h.data), fmt.Sprintf("scratch-%d", i))
	f.workers[i] = f.h.start(f.workerEnv, "work", "--server", "http://"+f.address, "--key-file", f.keyFile, "--scratch-dir", scratch,
		"--name", fmt.Sprintf("worker-%d", i), "--preset", "ultrafast")
}

func (f *farm) submit(clips int) {
	f.h.t.Helper()
	for i := range clips {
		// The lengths differ, so that no two videos are alike.
		file := makeClip(f.h.t, f.h.t.TempDir(), time.Second+time.Duration(i)*300*time.Millisecond, "64x48")
		if _, err := f.pool.Exec(f.h.t.Context(), `insert into tasks (source) values ($1)`, file); err != nil {
			f.h.t.Fatal(err)
		}
	}
}

// awaitPublished waits until all tasks are published, and checks that each stage was completed once.
func (f *farm) awaitPublished(tasks int) {
	f.h.t.Helper()
	done := func() bool {
		return count(f.h.t, f.pool, `select count(*) from tasks where publish_status = 'completed'`) == tasks
	}
	for deadline := time.Now().Add(4 * time.Minute); !done() && time.Now().Before(deadline); {
		time.Sleep(200 * time.Millisecond)
	}
	if !done() {
		f.h.t.Fatalf("only %d of %d tasks are published",
			count(f.h.t, f.pool, `select count(*) from tasks where publish_status = 'completed'`), tasks)
	}
	if n := count(f.h.t, f.pool, `select count(*) from attempts where outcome = 'completed'`); n != 5*tasks {
		f.h.t.Errorf("%d attempts were completed for %d tasks with 5 stages", n, tasks)
	}
	if n := count(f.h.t, f.pool, `select count(*) from attempts a join workers w on w.id = a.worker_id
		where a.outcome = 'completed' and a.stage in ('transcode', 'metadata') and (w.principal = '' or w.name !~ '^worker-')`); n != 0 {
		f.h.t.Errorf("%d attempts of transcode and metadata were not done by the remote workers", n)
	}
}

func TestRemoteWorkers_KilledAtRandomPublishEveryVideoOnce(t *testing.T) {
	t.Parallel()
	for name, env := range map[string]func(*testing.T) []string{
		"directory": func(*testing.T) []string { return nil },
		"bucket": func(t *testing.T) []string {
			server := s3test.Start(t, s3test.Options{})
			server.MakeBucket(t, "videos")
			env := []string{"CUELIGHT_DATA_DIR=s3://videos/data", "CUELIGHT_PUBLISH_DIR=s3://videos/public", "CUELIGHT_LOCAL_DIR=" + t.TempDir()}
			for _, name := range []string{"AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
				env = append(env, name+"="+server.Env()(name))
			}
			return env
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const clips, kills = 6, 6
			f := newFarm(t, 3, env(t)...)
			f.submit(clips)
			for range kills {
				time.Sleep(time.Second + time.Duration(rand.IntN(1000))*time.Millisecond) // at random is what is tested
				i := rand.IntN(len(f.workers) + 1)
				if i == len(f.workers) {
					f.coordinator.kill()
					f.startCoordinator()
					continue
				}
				f.workers[i].kill()
				f.startWorker(i)
			}
			f.awaitPublished(clips)
			for i, w := range f.workers {
				w.stop()
				scratch := filepath.Join(filepath.Dir(f.h.data), fmt.Sprintf("scratch-%d", i), "tasks")
				if left, err := os.ReadDir(scratch); err == nil && len(left) > 0 {
					t.Errorf("worker %d left %v", i, left)
				}
			}
			if env := strings.Join(f.env, " "); !strings.Contains(env, "s3://") {
				masters, err := filepath.Glob(filepath.Join(f.h.publish, "*", "master.m3u8"))
				if err != nil || len(masters) != clips {
					t.Fatalf("%d videos are published, %v", len(masters), err)
				}
				for _, master := range masters {
					checkPlayback(t, master)
				}
			}
		})
	}
}

func TestRemoteWorkers_AKilledOneIsReplacedWithinTenSeconds(t *testing.T) {
	t.Parallel()
	f := newFarm(t, 0)
	g, env := f.h.newGate()
	f.workerEnv = []string{env, "CUELIGHT_SANDBOX=off"}
	f.addWorkers(2)
	awaitCount(t, f.pool, 2, `select count(*) from workers where principal <> '' and stopped_at is null and lost_at is null`)
	f.submit(1)
	g.awaitWaiting(1)
	var name string
	if err := f.pool.QueryRow(t.Context(),
		`select w.name from tasks t join workers w on w.id = t.transcode_locked_by`).Scan(&name); err != nil {
		t.Fatal(err)
	}
	var i int
	if _, err := fmt.Sscanf(name, "worker-%d", &i); err != nil {
		t.Fatalf("the worker's name is %q", name)
	}
	time.Sleep(9 * time.Second) // a coordinator that has just started expires no workers
	killed := time.Now()
	f.workers[i].kill()
	awaitCount(t, f.pool, 1, `select count(*) from attempts where outcome = 'expired' and stage = 'transcode'`)
	awaitCount(t, f.pool, 1, `select count(*) from tasks where transcode_attempts = 2 and transcode_status = 'inprogress'`)
	var claimed time.Time
	if err := f.pool.QueryRow(t.Context(), `select transcode_locked_at from tasks`).Scan(&claimed); err != nil {
		t.Fatal(err)
	}
	if took := claimed.Sub(killed); took < 0 || took > 10*time.Second {
		t.Errorf("the other worker claimed the work after %s", took)
	}
	g.open()
	f.startWorker(i)
	f.awaitPublished(1)
}
