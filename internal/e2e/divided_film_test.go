package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/browsertest"
	"github.com/cuelight/cuelight/internal/waittest"
)

// filmLimit is how long tests wait for a film of a campaign.
const filmLimit = 20 * time.Minute

// isCampaign reports whether tests run in the size that their guarantee is about, which takes up to an hour.
func isCampaign() bool { return os.Getenv("CUELIGHT_TEST_CAMPAIGN") != "" }

// submit submits a file and returns the task's id.
func submit(t testing.TB, pool *pgxpool.Pool, file, params string) (id string) {
	t.Helper()
	err := pool.QueryRow(t.Context(), `insert into tasks (source, params) values ($1, $2) returning id`, file, params).Scan(&id)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// awaitParts waits until at least n parts of a task are completed.
func awaitParts(t testing.TB, pool *pgxpool.Pool, task string, n int) {
	t.Helper()
	waittest.Within(t, filmLimit, fmt.Sprintf("%d parts are completed", n), func() bool { return completedParts(t, pool, task) >= n })
}

func completedParts(t testing.TB, pool *pgxpool.Pool, task string) int {
	t.Helper()
	return count(t, pool, `select count(*) from steps where part > 0 and status = 'completed' and task_id = '`+task+`'`)
}

// In a campaign the film is two hours long and the clip two minutes.
func TestDividedFilm_LetsALaterClipPassOnOneSlot(t *testing.T) {
	t.Parallel()
	filmLength, clipLength, chunk, minDivided := 3*time.Minute, 13*time.Second, "6s", "12s"
	if isCampaign() {
		filmLength, clipLength, chunk, minDivided = 2*time.Hour, 2*time.Minute, "30s", "1m"
	}
	h := newEnvironment(t)
	pool := h.newDatabase()
	film := submit(t, pool, makeClip(t, t.TempDir(), filmLength, "64x48"), `{}`)
	clipFile := makeClip(t, t.TempDir(), clipLength, "64x48")
	d := h.serve(pool, "--chunk", chunk, "--min-divided", minDivided)
	awaitParts(t, pool, film, 3)
	clip := submit(t, pool, clipFile, `{}`)
	awaitCount(t, pool, 1, `select count(*) from tasks where publish_status = 'completed' and id = '`+clip+`'`)
	done := completedParts(t, pool, film)
	all := count(t, pool, `select count(*) from steps where part > 0 and task_id = '`+film+`'`)
	if done > all/2 {
		t.Errorf("the clip was published when %d of %d parts of the film were completed", done, all)
	}

	var ahead, filmShare, clipParts int
	if err := pool.QueryRow(t.Context(), `
		with a as (select * from attempts where stage = 'transcode'),
		     c as (select min(finished_at) filter (where outcome = 'divided') as divided_at,
		                  min(started_at) filter (where part > 0) as started_at,
		                  max(finished_at) filter (where part > 0) as finished_at,
		                  count(*) filter (where part > 0) as parts
		           from a where task_id = $2)
		select count(*) filter (where a.started_at between c.divided_at and c.started_at),
		       count(*) filter (where a.started_at > c.started_at and a.finished_at < c.finished_at),
		       min(c.parts)
		from c, a where a.task_id = $1 and a.part > 0`, film, clip).Scan(&ahead, &filmShare, &clipParts); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d parts of the film were completed; %d began before the clip did, and %d while its %d parts were made",
		done, all, ahead, filmShare, clipParts)
	if ahead > 1 {
		t.Errorf("%d parts of the film began between the division of the clip and its first part", ahead)
	}
	if filmShare < clipParts-2 {
		t.Errorf("the film had %d of its parts done while the clip had %d", filmShare, clipParts)
	}
	if n := count(t, pool, `select count(*) from attempts where outcome not in ('completed', 'divided')`); n != 0 {
		t.Errorf("%d attempts were not completed", n)
	}
	d.stop()
}

func TestDividedFilm_KeepsItsPartsWhenDaemonsAreReplaced(t *testing.T) {
	t.Parallel()
	h := newEnvironment(t)
	pool := h.newDatabase()
	film := submit(t, pool, makeClip(t, t.TempDir(), 2*time.Minute, "64x48"), `{}`)
	stopped := h.serve(pool, "--chunk", "6s", "--name", "stopped")
	awaitParts(t, pool, film, 3)
	stopped.stop()

	n := completedParts(t, pool, film)
	drained := h.serve(pool, "--chunk", "6s", "--name", "drained")
	awaitParts(t, pool, film, n+3)
	cmd := h.command("drain", "drained")
	cmd.Env = append(cmd.Env, "CUELIGHT_DATABASE_URL="+pool.Config().ConnString())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// The next release has other settings. The parts stay what they are.
	last := h.serve(pool, "--chunk", "30s", "--name", "last", "--preset", "superfast")
	if err := <-drained.ended; err != nil {
		t.Errorf("the drained daemon ended with %v", err)
	}
	drained.cmd = nil
	awaitCount(t, pool, 1, `select count(*) from tasks where publish_status = 'completed'`)
	last.stop()

	if n := count(t, pool, `select count(*) from attempts where outcome = 'divided'`); n != 1 {
		t.Errorf("transcode was divided %d times", n)
	}
	if n := count(t, pool, `select count(distinct w.name) from attempts a join workers w on w.id = a.worker_id where part > 0`); n != 3 {
		t.Errorf("%d daemons worked on the parts, want 3", n)
	}
	if n := count(t, pool, `select count(*) from attempts where outcome not in ('completed', 'divided')`); n != 0 {
		t.Errorf("%d attempts were interrupted, though a chunk takes less than the grace", n)
	}
	if n := count(t, pool, `select count(*) - count(distinct (stage, part)) from attempts where outcome = 'completed'`); n != 0 {
		t.Errorf("%d parts or stages were completed twice", n)
	}
	checkPlayback(t, publishedMasters(t, h)[0])
}

// Each worker has a core of its own. The ratio is about the parts: ingest, the join and publishing are not divided.
func TestDividedFilm_TakesHalfTheTimeOnTwoCores(t *testing.T) {
	if !isCampaign() {
		t.Skip("CUELIGHT_TEST_CAMPAIGN is not set")
	}
	film := makeClip(t, t.TempDir(), 5*time.Minute, "1280x720")
	var parts, whole [2]time.Duration
	for i := range parts {
		h := newEnvironment(t)
		pool := h.newDatabase()
		submit(t, pool, film, `{}`)
		for core := range i + 1 {
			serve := h.command("serve", "--preset", "veryfast")
			serve.Env = append(serve.Env, "CUELIGHT_DATABASE_URL="+pool.Config().ConnString())
			cmd := exec.Command("taskset", append([]string{"-c", fmt.Sprint(core)}, serve.Args...)...)
			cmd.Env = serve.Env
			h.startCommand(cmd)
		}
		waittest.Within(t, filmLimit, "the film is published", func() bool {
			return count(t, pool, `select count(*) from tasks where publish_status = 'completed'`) == 1
		})
		var seconds, wholeSeconds float64
		if err := pool.QueryRow(t.Context(), `
			select extract(epoch from max(finished_at) filter (where part > 0) - min(started_at) filter (where part > 0))::float8,
			       extract(epoch from max(finished_at) - min(started_at))::float8
			from attempts`).Scan(&seconds, &wholeSeconds); err != nil {
			t.Fatal(err)
		}
		parts[i], whole[i] = time.Duration(seconds*float64(time.Second)), time.Duration(wholeSeconds*float64(time.Second))
	}
	ratio := parts[0].Seconds() / parts[1].Seconds()
	t.Logf("parts: %s and %s, ratio %.2f; from ingest to publish: %s and %s, ratio %.2f", parts[0], parts[1], ratio,
		whole[0], whole[1], whole[0].Seconds()/whole[1].Seconds())
	if ratio < 1.8 {
		t.Errorf("two workers are %.2f times as fast as one", ratio)
	}
}

// The players begin with the early generation, and wait until the whole ladder has replaced it.
func TestDividedFilm_PlaysAcrossTheSwitchOfItsEarlyGeneration(t *testing.T) {
	t.Parallel()
	h := newEnvironment(t)
	browser := browsertest.Require(t)
	pool := h.newDatabase()
	const length = 75 * time.Second // more than the players have in their buffers
	task := submit(t, pool, makeClip(t, t.TempDir(), length, "640x480"), `{"watch_early": true}`)
	d := h.serve(pool)
	awaitCount(t, pool, 2, `select count(*) from attempts where outcome = 'divided'`)
	d.stop()
	if n := completedParts(t, pool, task); n == count(t, pool, `select count(*) from steps where part > 0`) {
		t.Fatalf("all of %d parts are completed already", n)
	}
	early := publishedMasters(t, h)
	replace := sync.OnceFunc(func() {
		d := h.serve(pool)
		awaitCount(t, pool, 1, `select count(*) from tasks where publish_status = 'completed'`)
		d.stop()
	})
	browser.Play(t, map[string]browsertest.Video{"film": {Dir: filepath.Dir(early[0]), Length: length}},
		browsertest.PlayOptions{Hold: replace})
	if n, err := filepath.Glob(filepath.Join(filepath.Dir(early[0]), "gen-*")); err != nil || len(n) != 2 {
		t.Errorf("the generations are %q, %v; want 2", n, err)
	}
}
