package video

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/internal/storage/s3test"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// fileHashes returns the SHA-256 of the files below directories, by their paths relative to these.
func fileHashes(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for i, dir := range dirs {
		err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			content, err := os.ReadFile(name)
			found[fmt.Sprint(i, strings.TrimPrefix(name, dir))] = fmt.Sprintf("%x", sha256.Sum256(content))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// movedSource is a stored source of newMoveTest.
const movedSource = sourcesDir + "/upload-1"

// moveTest is a task in directories with two generations, a stored source, and a service to move them to.
type moveTest struct {
	*harness
	proxy  *s3test.Proxy
	before map[string]string // fileHashes of both directories
}

func newMoveTest(t *testing.T) *moveTest {
	t.Helper()
	h, m := readyHarness(t)
	h.mustPublish(m)
	h.mustPublish(m)
	if err := os.MkdirAll(filepath.Join(h.DataDir, movedSource), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(h.DataDir, movedSource, "source.mp4"), "a film")
	server := s3test.Start(t, s3test.Options{})
	server.MakeBucket(t, "videos")
	return &moveTest{harness: h, proxy: s3test.NewProxy(t, server), before: fileHashes(t, h.DataDir, h.PublishDir)}
}

// openTestLocation opens s3://… at a test server, and takes everything else for a directory.
func openTestLocation(location, endpoint string) (Location, error) {
	if !IsBucketAddress(location) {
		return Location{Dir: location}, nil
	}
	env := map[string]string{
		"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": s3test.AccessKey, "AWS_SECRET_ACCESS_KEY": s3test.SecretKey,
	}
	b, err := OpenBucket(location, func(name string) string { return env[name] })
	return Location{Bucket: b}, err
}

// move returns a move of everything from two locations to two others.
func (h *moveTest) move(fromData, fromPublished, toData, toPublished string) *Move {
	h.t.Helper()
	var locations [4]Location
	for i, location := range []string{fromData, toData, fromPublished, toPublished} {
		var err error
		if locations[i], err = openTestLocation(location, h.proxy.Endpoint); err != nil {
			h.t.Fatal(err)
		}
		if b := locations[i].Bucket; b != nil {
			h.t.Cleanup(b.Close)
		}
	}
	return &Move{Data: Route{locations[0], locations[1]}, Published: Route{locations[2], locations[3]}}
}

func (h *moveTest) toBucket() *Move {
	return h.move(h.DataDir, h.PublishDir, "s3://videos/data", "s3://videos/public")
}

// moveAll does the whole move, as the command does.
func moveAll(ctx context.Context, m *Move) error {
	if err := errors.Join(m.Check(), m.Begin(ctx)); err != nil {
		return err
	}
	tasks, err := m.Tasks(ctx)
	if err != nil {
		return err
	}
	for _, task := range tasks {
		if _, err := m.Copy(ctx, task); err != nil {
			return err
		}
	}
	if _, err := m.CopySources(ctx); err != nil {
		return err
	}
	return m.Finish(ctx)
}

// back moves everything from the bucket to new directories.
func (h *moveTest) back() (data, published string) {
	h.t.Helper()
	data, published = h.t.TempDir(), h.t.TempDir()
	if err := moveAll(h.t.Context(), h.move("s3://videos/data", "s3://videos/public", data, published)); err != nil {
		h.t.Fatal(err)
	}
	return data, published
}

// distinctBytes is the size of all files, without other links to them.
func (h *moveTest) distinctBytes() (total int64) {
	h.t.Helper()
	sizes := make(map[string]int64)
	for file, text := range snapshot(h.t, h.DataDir, h.PublishDir) {
		info, err := os.Stat(file)
		if err != nil {
			h.t.Fatal(err)
		}
		sizes[text] = info.Size()
	}
	for _, size := range sizes {
		total += size
	}
	return total
}

// distinctFiles counts the files with more than 3000 bytes, without other links to them. A smaller one
// may happen to be like another.
func distinctFiles(t *testing.T, dirs ...string) int {
	t.Helper()
	found := make(map[string]bool)
	for file, text := range snapshot(t, dirs...) {
		if info, err := os.Stat(file); err == nil && info.Size() > 3000 {
			found[text] = true
		}
	}
	return len(found)
}

// served reads the stable manifests in a location and everything that they refer to.
func (h *moveTest) served(p Location) (generations []string, err error) {
	stable, err := p.readStable(context.Background(), h.job.Task)
	for i, name := range []string{media.MasterName, media.ManifestName} {
		for _, generation := range stable[i].served {
			files, listErr := p.listFiles(context.Background(), path.Join(h.job.Task.String(), generation))
			if listErr != nil || len(files) < 5 {
				err = errors.Join(err, fmt.Errorf("%s in %s refers to %s with %d files: %w", name, p, generation, len(files), listErr))
			}
			generations = append(generations, generation)
		}
	}
	return generations, err
}

func TestMove_BringsEveryFileToABucketAndBack(t *testing.T) {
	t.Parallel()
	h := newMoveTest(t)
	m := h.toBucket()
	if err := moveAll(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	// Linked files are sent once; lists of files and manifests are small.
	if sent, _ := h.proxy.Bytes(); sent > h.distinctBytes()+30_000 {
		t.Errorf("%d bytes were sent for %d different ones", sent, h.distinctBytes())
	}
	if diff := cmp.Diff(append(list(t, h.DataDir), list(t, h.PublishDir)...), []string{
		movedFile(DataContent), sourcesDir, tasksName, movedFile(PublishContent), h.job.Task.String(),
	}); diff != "" {
		t.Error(diff)
	}
	for kind, route := range m.Routes() {
		if err := os.Remove(filepath.Join(route.From.Dir, movedFile(kind))); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(h.before, fileHashes(t, h.DataDir, h.PublishDir)); diff != "" {
		t.Errorf("the old locations were changed: %s", diff)
	}
	served, err := h.served(m.Published.To)
	if err != nil || len(served) != 2 || !strings.HasPrefix(served[0], "gen-0002-") || served[1] != served[0] {
		t.Errorf("the bucket serves %q: %v", served, err)
	}
	again, err := m.Copy(t.Context(), h.job.Task)
	if err != nil || again.Copied != 0 || again.Present != 6 || again.Switched {
		t.Errorf("a repeated copy: %+v, %v", again, err)
	}
	// Another bucket of the service, whose copies the service makes.
	other := h.move("s3://videos/data", "s3://videos/public", "s3://videos/other/data", "s3://videos/other/public")
	if err := moveAll(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	data, published := t.TempDir(), t.TempDir()
	home := h.move("s3://videos/other/data", "s3://videos/other/public", data, published)
	if err := moveAll(t.Context(), home); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(h.before, fileHashes(t, data, published)); diff != "" {
		t.Error(diff)
	}
	// Links between results and generations are made again.
	before, after := distinctFiles(t, h.DataDir, h.PublishDir), distinctFiles(t, data, published)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("different files: %s", diff)
	}
	for _, generation := range list(t, filepath.Join(published, h.job.Task.String())) {
		info, err := os.Stat(filepath.Join(published, h.job.Task.String(), generation))
		if err != nil || info.Mode().Perm()&0o044 != 0o044 {
			t.Errorf("%s cannot be read by others: %v, %v", generation, info.Mode(), err)
		}
	}
	// A location that was moved is no location to move from, unless to the same.
	if _, err := h.move("s3://videos/data", "s3://videos/public", t.TempDir(), t.TempDir()).IsComplete(t.Context()); err == nil {
		t.Error("a location can be moved twice")
	}
	if complete, err := other.IsComplete(t.Context()); !complete || err != nil {
		t.Errorf("the move is complete: %t, %v", complete, err)
	}
}

func TestMove_ReplacesNoNewerGeneration(t *testing.T) {
	t.Parallel()
	h := newMoveTest(t)
	m := h.toBucket()
	newer := []byte(strings.Repeat("gen-0007-aaaaaaaaaa/master.m3u8\n", 2))
	err := m.Published.To.replaceStable(t.Context(), h.job.Task, stableManifests{{name: media.MasterName}}, [2][]byte{newer, nil})
	if err != nil {
		t.Fatal(err)
	}
	if done, err := m.Copy(t.Context(), h.job.Task); err != nil || done.Switched {
		t.Errorf("%+v, %v", done, err)
	}
	if found, err := m.Published.To.readStable(t.Context(), h.job.Task); err != nil || found.newest() != 7 {
		t.Errorf("it serves %d, %v", found.newest(), err)
	}
}

func TestMove_ReplacesNoGenerationThatIsServedMeanwhile(t *testing.T) {
	t.Parallel()
	h := newMoveTest(t)
	if err := moveAll(t.Context(), h.toBucket()); err != nil {
		t.Fatal(err)
	}
	for kind, to := range map[string]string{"directory": t.TempDir(), "bucket": "s3://videos/other"} {
		slow := h.move("s3://videos/data", "s3://videos/public", t.TempDir(), to)
		var once sync.Once
		slow.Progress = func(name string, _, _ int64) {
			if !strings.Contains(name, "gen-0002") {
				return
			}
			once.Do(func() { // meanwhile another move ends, and a worker publishes in the new location
				newer := []byte("gen-0007-aaaaaaaaaa/master.m3u8\n")
				old, err := slow.Published.To.readStable(t.Context(), h.job.Task)
				if err == nil {
					err = slow.Published.To.replaceStable(t.Context(), h.job.Task, old, [2][]byte{newer, newer})
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		done, err := slow.Copy(t.Context(), h.job.Task)
		if err != nil || done.Switched {
			t.Errorf("%s: switched: %t, %v", kind, done.Switched, err)
		}
		if found, err := slow.Published.To.readStable(t.Context(), h.job.Task); err != nil || found.newest() != 7 {
			t.Errorf("%s: it serves %d, %v", kind, found.newest(), err)
		}
	}
}

func TestMove_CopiesTwoGenerationsOfOneNumber(t *testing.T) {
	t.Parallel()
	h := newMoveTest(t)
	// An attempt that had lost its claim has left it.
	orphan := filepath.Join(h.PublishedDir(h.job.Task), "gen-0002-zzzzzzzzzz")
	if err := os.Mkdir(orphan, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(orphan, "x.mp4"), "x")
	m := h.toBucket()
	if _, err := m.Copy(t.Context(), h.job.Task); err != nil {
		t.Fatal(err)
	}
	if served, err := h.served(m.Published.To); err != nil || len(served) != 2 {
		t.Errorf("the bucket serves %q: %v", served, err)
	}
}

func TestMove_CopiesWhileTheVideoIsPublishedAgain(t *testing.T) {
	t.Parallel()
	h := newMoveTest(t)
	_, m := readyHarness(t)
	h.KeepOld = -1 // a replaced generation is removed at once
	move := h.toBucket()
	var publishing sync.WaitGroup
	stop := make(chan struct{})
	publishing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := h.tryPublish(m); err != nil {
				t.Error(err)
			}
		}
	})
	for range 8 {
		if _, err := move.Copy(t.Context(), h.job.Task); err != nil && !strings.Contains(err.Error(), "again and again") {
			t.Error(err)
		}
		if _, err := h.served(move.Published.To); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	publishing.Wait()
	if err := moveAll(t.Context(), move); err != nil {
		t.Fatal(err)
	}
	here, err1 := h.served(move.Published.From)
	there, err2 := h.served(move.Published.To)
	if diff := cmp.Diff(here, there); diff != "" || err1 != nil || err2 != nil {
		t.Errorf("%s, %v, %v", diff, err1, err2)
	}
}

func TestMove_DryRunChangesNothing(t *testing.T) {
	t.Parallel()
	h := newMoveTest(t)
	m := h.toBucket()
	m.DryRun = true
	if done, err := m.Copy(t.Context(), h.job.Task); err != nil || done.Copied != 6 || done.Bytes == 0 || !done.Switched {
		t.Errorf("%+v, %v", done, err)
	}
	if left, err := m.Published.To.tasks(t.Context(), ""); err != nil || len(left) > 0 {
		t.Errorf("copied: %v, %v", left, err)
	}
	m.DryRun = false
	if err := moveAll(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	data, published := h.back()
	private := filepath.Join(published, h.job.Task.String())
	if err := os.Chmod(private, 0o700); err != nil { // as if a copy was interrupted
		t.Fatal(err)
	}
	again := h.move("s3://videos/data", "s3://videos/public", data, published)
	again.DryRun = true
	if done, err := again.Copy(t.Context(), h.job.Task); err != nil || done.Present != 6 {
		t.Errorf("%d present, %v", done.Present, err)
	}
	if info, err := os.Stat(private); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("a dry run changed the mode to %v, %v", info.Mode(), err)
	}
}

func TestMove_RefusesRoutesThatItCannotTake(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bucket := func(endpoint string) Location {
		p, err := openTestLocation("s3://videos/data", endpoint)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	here, there := bucket("http://127.0.0.1:1"), bucket("http://127.0.0.1:2")
	for text, m := range map[string]*Move{
		"no location":           {},
		"two directories":       {Data: Route{Location{Dir: dir}, Location{Dir: t.TempDir()}}},
		"two services":          {Data: Route{here, there}},
		"it is moved from":      {Published: Route{here, here}},
		"no such file":          {Published: Route{Location{Dir: filepath.Join(dir, "missing")}, here}},
		"that it is moved from": {Published: Route{Location{Dir: dir}, Location{Dir: dir}}},
	} {
		if err := m.Check(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if tasks, err := (Location{Dir: dir}).tasks(t.Context(), tasksName); err != nil || len(tasks) > 0 {
		t.Errorf("%v, %v", tasks, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, tasksName, store.ID{15: 7}.String()), 0o755); err != nil {
		t.Fatal(err)
	}
	if tasks, err := (Location{Dir: dir}).tasks(t.Context(), tasksName); err != nil || len(tasks) != 1 {
		t.Errorf("%v, %v", tasks, err)
	}
}

func TestMove_KeepsAWorkerThatWasStoppedFromTheOldLocation(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	h.mustPublish(m)
	h.job.Results = results(m)
	server := s3test.Start(t, s3test.Options{})
	server.MakeBucket(t, "videos")
	bucket, err := openTestLocation("s3://videos/public", server.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bucket.Bucket.Close)
	inBucket := *h
	inBucket.PublishBucket = bucket.Bucket
	for _, test := range []struct {
		harness *harness
		moved   Location
		kind    ContentKind
	}{{h, h.DataLocation(), DataContent}, {h, h.PublishLocation(), PublishContent}, {&inBucket, bucket, PublishContent}} {
		if err := test.moved.writeMoved(t.Context(), test.kind, Moved{To: "s3://elsewhere"}); err != nil {
			t.Fatal(err)
		}
		err := test.harness.run(t.Context(), publishStage, m)
		if !stages.IsPostponed(err) || !strings.Contains(fmt.Sprint(err), "was moved to s3://elsewhere") {
			t.Errorf("%s: %v", test.moved, err)
		}
		if err := test.moved.removeMoved(t.Context(), test.kind); err != nil {
			t.Fatal(err)
		}
		if err := test.harness.run(t.Context(), publishStage, m); err != nil {
			t.Errorf("%s: %v", test.moved, err)
		}
	}
}
