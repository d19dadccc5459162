package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/minio/minio-go/v7"

	"github.com/cuelight/cuelight/internal/browsertest"
	"github.com/cuelight/cuelight/internal/storage/s3test"
	"github.com/cuelight/cuelight/internal/waittest"
)

// farm is a coordinator that leaves transcode and metadata to remote workers, and these workers.
// Each has a scratch directory of its own and no address of the database.
type farm struct {
	h           environment
	pool        *pgxpool.Pool
	address     string   // on which the coordinator listens
	server      string   // the URL at which the workers reach it
	env, args   []string // of the coordinator
	workerEnv   []string
	workerArgs  []string
	hosts       []*host // of the workers; nil for this one
	keyFile     string
	coordinator *daemon
	workers     []*daemon
}

// newFarm prepares a farm whose coordinator listens on an address of this host.
func newFarm(t *testing.T, ip string) *farm {
	t.Helper()
	h := newEnvironment(t)
	f := &farm{h: h, pool: h.newDatabase(), address: freeAddress(t, ip)}
	f.server = "http://" + f.address
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
	return f
}

// useTLS makes the coordinator serve TLS.
func (f *farm) useTLS(ips ...net.IP) {
	f.h.t.Helper()
	cert, key := s3test.MakeCertificate(f.h.t, ips...)
	f.server, f.args, f.workerArgs = "https://"+f.address, []string{"--tls-cert", cert, "--tls-key", key}, []string{"--ca-file", cert}
}

// useBucket keeps everything in a bucket, at an address of this host. published downloads what is
// published and returns the files named master.m3u8.
func (f *farm) useBucket(ip string) (published func() []string) {
	t := f.h.t
	t.Helper()
	server := s3test.Start(t, s3test.Options{})
	server.MakeBucket(t, "videos")
	f.env = []string{
		"CUELIGHT_DATA_DIR=s3://videos/data", "CUELIGHT_PUBLISH_DIR=s3://videos/public", "CUELIGHT_LOCAL_DIR=" + t.TempDir(),
		"AWS_ENDPOINT_URL=http://" + newLink(t, ip, server.Host()).address,
		"AWS_ACCESS_KEY_ID=" + s3test.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s3test.SecretKey,
	}
	return func() (masters []string) {
		t.Helper()
		dir, client := t.TempDir(), server.Client(t)
		for object := range client.ListObjectsIter(t.Context(), "videos", minio.ListObjectsOptions{Prefix: "public/", Recursive: true}) {
			file := filepath.Join(dir, object.Key)
			if err := client.FGetObject(t.Context(), "videos", object.Key, file, minio.GetObjectOptions{}); err != nil {
				t.Fatal(err)
			}
			if ok, _ := filepath.Match("public/*/master.m3u8", object.Key); ok {
				masters = append(masters, file)
			}
		}
		return masters
	}
}

func publishedMasters(t testing.TB, h environment) []string {
	t.Helper()
	masters, err := filepath.Glob(filepath.Join(h.publish, "*", "master.m3u8"))
	if err != nil {
		t.Fatal(err)
	}
	return masters
}

// lastAttempts counts the attempts in progress after whose loss their stage would be dead.
const lastAttempts = `select count(*) from steps where status = 'running' and attempts > 2`

// awaitChunkHolder waits for a worker that has a part in hand, and no attempt after whose loss its stage would be dead. It
// prefers one of them. It returns -1 once all parts are completed.
func (f *farm) awaitChunkHolder(preferred int) int {
	f.h.t.Helper()
	name := ""
	waittest.Until(f.h.t, "a worker has a part in hand", func() bool {
		err := f.pool.QueryRow(f.h.t.Context(), `
			select w.name from workers w
			where exists (select from steps where locked_by = w.id and part > 0)
			  and not exists (select from steps where locked_by = w.id and attempts > 2)
			order by w.name <> 'worker-' || $1::int, random() limit 1`, preferred).Scan(&name)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			f.h.t.Fatal(err)
		}
		return err == nil || count(f.h.t, f.pool, `select count(*) from (
			select from steps where part > 0 having count(*) > 0 and bool_and(status = 'completed')) as divided`) == 1
	})
	return slices.Index([]string{"worker-0", "worker-1", "worker-2"}, name)
}

// killAtRandom kills workers and the coordinator, and starts them again. It returns when all
// of them work again: a process that has just been started may not handle signals yet.
func (f *farm) killAtRandom(kills int, every time.Duration) {
	f.h.t.Helper()
	for range kills {
		time.Sleep(every/2 + rand.N(every)) // at random is what is tested
		awaitCount(f.h.t, f.pool, 0, lastAttempts)
		if i := rand.IntN(len(f.workers) + 1); i < len(f.workers) {
			f.workers[i].kill()
			f.startWorker(i)
		} else {
			f.coordinator.kill()
			f.startCoordinator()
		}
	}
	for _, d := range append(f.workers, f.coordinator) {
		d.awaitLogged("working")
	}
}

func (f *farm) addWorkers(n int) {
	f.h.t.Helper()
	for range n {
		f.workers = append(f.workers, nil)
		f.startWorker(len(f.workers) - 1)
	}
}

// freeAddress returns an address on which nothing listens. A restarted coordinator uses it again.
func freeAddress(t testing.TB, ip string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (f *farm) startCoordinator() {
	f.h.t.Helper()
	f.coordinator = f.h.serveWith(f.env, f.pool,
		append([]string{"--listen", f.address, "--slots", "transcode=0,metadata=0"}, f.args...)...)
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
	cmd := f.h.command(append([]string{
		"work", "--server", f.server, "--key-file", f.keyFile, "--scratch-dir", scratch,
		"--name", fmt.Sprintf("worker-%d", i), "--preset", "ultrafast",
	}, f.workerArgs...)...)
	cmd.Env = append(cmd.Env, f.workerEnv...)
	if f.hosts != nil {
		f.hosts[i].enter(cmd)
	}
	f.workers[i] = f.h.startCommand(cmd)
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
	isDead := func() bool {
		return count(f.h.t, f.pool, `select count(*) from tasks where cuelight_video_status(tasks) = 'dead'`) > 0
	}
	for deadline := time.Now().Add(10 * time.Minute); !done() && !isDead() && time.Now().Before(deadline); {
		time.Sleep(200 * time.Millisecond)
	}
	if !done() {
		for _, d := range append(f.workers, f.coordinator) {
			f.h.t.Logf("%s: %v %v", d.cmd.Args, d.logged("error"), d.logged("warn"))
		}
		f.logRows(`select row_to_json(t) from tasks t where publish_status <> 'completed'`)
		f.logRows(`select row_to_json(w) from (select id, name, principal, started_at, heartbeat_at, stopped_at, lost_at from workers) w`)
		f.logRows(`select row_to_json(a) from attempts a join tasks t on t.id = a.task_id where t.publish_status <> 'completed'`)
		f.h.t.Fatalf("only %d of %d tasks are published",
			count(f.h.t, f.pool, `select count(*) from tasks where publish_status = 'completed'`), tasks)
	}
	if n := count(f.h.t, f.pool, `select count(*) from attempts where outcome = 'completed' and part = 0`); n != 5*tasks {
		f.h.t.Errorf("%d attempts were completed for %d tasks with 5 stages", n, tasks)
	}
	if n := count(f.h.t, f.pool, `select count(*) from attempts a join workers w on w.id = a.worker_id
		where a.outcome = 'completed' and (a.part > 0 or a.stage = 'metadata') and (w.principal = '' or w.name !~ '^worker-')`); n != 0 {
		f.h.t.Errorf("%d attempts of transcode and metadata were not done by the remote workers", n)
	}
}

// logRows logs what a query selects, for a test that fails.
func (f *farm) logRows(sql string) {
	f.h.t.Helper()
	rows, err := f.pool.Query(f.h.t.Context(), sql)
	if err != nil {
		f.h.t.Error(err)
		return
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	f.h.t.Logf("%s: %v\n%s", sql, err, strings.Join(list, "\n"))
}

func TestRemoteWorkers_KilledAtRandomPublishEveryVideoOnce(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"directory", "bucket"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const clips, kills = 6, 6
			f := newFarm(t, "127.0.0.1")
			published := func() []string { return publishedMasters(t, f.h) }
			if name == "bucket" {
				published = f.useBucket("127.0.0.1")
			}
			f.startCoordinator()
			f.addWorkers(3)
			f.submit(clips)
			f.killAtRandom(kills, 1500*time.Millisecond)
			f.awaitPublished(clips)
			for i, w := range f.workers {
				w.stop()
				scratch := filepath.Join(filepath.Dir(f.h.data), fmt.Sprintf("scratch-%d", i), "tasks")
				if left, err := os.ReadDir(scratch); err == nil && len(left) > 0 {
					t.Errorf("worker %d left %v", i, left)
				}
			}
			masters := published()
			if len(masters) != clips {
				t.Fatalf("%d videos are published, want %d", len(masters), clips)
			}
			for _, master := range masters {
				checkPlayback(t, master)
			}
		})
	}
}

func TestRemoteWorkers_AKilledOneIsReplacedWithinTenSeconds(t *testing.T) {
	t.Parallel()
	f := newFarm(t, "127.0.0.1")
	f.startCoordinator()
	g, env := f.h.newGate()
	f.workerEnv = []string{env, "CUELIGHT_SANDBOX=off"}
	f.addWorkers(2)
	awaitCount(t, f.pool, 2, `select count(*) from workers where principal <> '' and stopped_at is null and lost_at is null`)
	f.submit(1)
	g.awaitWaiting(1)
	var name string
	if err := f.pool.QueryRow(t.Context(),
		`select w.name from steps s join workers w on w.id = s.locked_by where s.part > 0`).Scan(&name); err != nil {
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
	awaitCount(t, f.pool, 1, `select count(*) from steps where attempts = 2 and status = 'running'`)
	var claimed time.Time
	if err := f.pool.QueryRow(t.Context(), `select locked_at from steps where part > 0`).Scan(&claimed); err != nil {
		t.Fatal(err)
	}
	if took := claimed.Sub(killed); took < 0 || took > 10*time.Second {
		t.Errorf("the other worker claimed the work after %s", took)
	}
	g.open()
	f.startWorker(i)
	f.awaitPublished(1)
}

// countLostParts returns how many of the parts that a worker started have expired. It does not count
// claims that it had prefetched, as it does for parts that take less than a second.
func (f *farm) countLostParts(d *daemon) (n int) {
	f.h.t.Helper()
	for _, line := range d.logged("info") {
		if line["msg"] != "part started" {
			continue
		}
		n += count(f.h.t, f.pool, fmt.Sprintf(
			`select count(*) from attempts where outcome = 'expired' and part = %v and attempt = %v`, line["part"], line["attempt"]))
	}
	return n
}

// CUELIGHT_TEST_CAMPAIGN=1 makes it a film of an hour, and kills each worker 20 times.
func TestRemoteWorkers_LoseTheChunksInHandWhenTheyAreKilled(t *testing.T) {
	t.Parallel()
	length, size, kills, every := 5*time.Minute, "64x48", 6, 1500*time.Millisecond
	if isCampaign() {
		length, size, kills, every = time.Hour, "640x360", 60, 4*time.Second
	}
	f := newFarm(t, "127.0.0.1")
	f.startCoordinator()
	f.addWorkers(3)
	film := makeClip(t, t.TempDir(), length, size)
	started := time.Now()
	if _, err := f.pool.Exec(t.Context(), `insert into tasks (source) values ($1)`, film); err != nil {
		t.Fatal(err)
	}
	var killed []*daemon
	for w := f.awaitChunkHolder(0); w >= 0 && len(killed) < kills; w = f.awaitChunkHolder(len(killed) % len(f.workers)) {
		f.workers[w].kill()
		killed = append(killed, f.workers[w])
		f.startWorker(w)
		time.Sleep(every/2 + rand.N(every)) // at random is what is tested
	}
	if isCampaign() && len(killed) < kills {
		t.Errorf("the film was transcoded after %d kills", len(killed))
	}
	f.awaitPublished(1)
	lost := 0
	for i, d := range killed {
		n := f.countLostParts(d)
		if lost += n; n > 1 {
			t.Errorf("kill %d cost %d parts that the worker had started, in its only slot", i+1, n)
		}
	}
	again := count(t, f.pool, `select count(*) - count(distinct part) from attempts where outcome = 'completed' and part > 0`)
	parts := count(t, f.pool, `select count(*) from steps where part > 0`)
	t.Logf("%d parts, %d kills, %d parts were lost, %d were completed again, in %s",
		parts, len(killed), lost, again, time.Since(started).Round(time.Second))
	if lost == 0 || again > 0 || parts < 10 {
		t.Errorf("no part was lost, or other parts than those in hand")
	}
	for _, master := range publishedMasters(t, f.h) {
		checkPlayback(t, master)
		if isCampaign() {
			browsertest.Require(t).Play(t, map[string]browsertest.Video{"film": {Dir: filepath.Dir(master), Length: length}},
				browsertest.PlayOptions{Rate: 12, Timeout: 20 * time.Minute})
		}
	}
}

func TestRemoteWorkers_EndWhenTheyAreIdle(t *testing.T) {
	t.Parallel()
	f := newFarm(t, "127.0.0.1")
	f.workerArgs = []string{"--until-idle=3s"}
	f.startCoordinator()
	f.submit(2)
	f.addWorkers(1)
	f.awaitPublished(2)
	if n := count(t, f.pool, `select count(*) from attempts a join workers w on w.id = a.worker_id
		where w.name = 'worker-0' and a.stage = 'metadata' and a.outcome = 'completed'`); n != 2 {
		t.Errorf("the worker has done %d of 2 tasks", n)
	}
	select {
	case err := <-f.workers[0].ended:
		if f.workers[0].cmd = nil; err != nil {
			t.Errorf("the idle worker ended: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the idle worker did not end")
	}
}
