package video

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/storage/s3test"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// film makes a clip of 20 s with sound, which has four chunks: three of 6 s, and one of 2 s. Its only rendition
// is 240p.
func film(t *testing.T) string { return filmOfSize(t, "320x240") }

func filmOfSize(t *testing.T, size string) string {
	t.Helper()
	if clips.picture == "" {
		t.Skip("there is no ffmpeg here")
	}
	file := filepath.Join(t.TempDir(), "film.mp4")
	clip := exec.Command("ffmpeg", "-nostdin", "-v", "error", "-f", "lavfi", "-i", "testsrc2=s="+size+":r=10:d=20",
		"-f", "lavfi", "-i", "sine=d=20", "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "25", file)
	if text, err := clip.CombinedOutput(); err != nil {
		t.Fatalf("make clip: %v: %s", err, text)
	}
	return file
}

// newChunkSite is a site that divides into chunks of 6 s.
func newChunkSite(t *testing.T, bucket *Bucket) *remoteSite {
	t.Helper()
	s := newRemoteSiteOver(t, bucket)
	s.ChunkLength = 6 * time.Second
	return s
}

// newWorkingSite is a site with a local worker. If it is remote, a remote worker does the transcodes, and the results are
// in a bucket.
func newWorkingSite(t *testing.T, length time.Duration, isRemote bool) *remoteSite {
	t.Helper()
	if !isRemote {
		s := newRemoteSite(t)
		s.ChunkLength = length
		s.workLocally()
		return s
	}
	server := s3test.Start(t, s3test.Options{})
	server.MakeBucket(t, "videos")
	open := func() *Bucket {
		b, err := OpenBucket("s3://videos/data", server.Env())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		return b
	}
	s := newRemoteSiteOver(t, open())
	s.ChunkLength, s.Bucket = length, open() // a Bucket has the settings of its first user
	s.workLocally(RemoteStageNames()...)
	s.workRemotely(s.url, "key-1")
	return s
}

// outcomes lists the attempts of transcode, in the order of their ends.
func (s *remoteSite) outcomes(task store.ID) (list []string) {
	s.t.Helper()
	history, err := s.History(s.t.Context(), task)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, a := range history {
		if a.Stage == transcodeStage {
			list = append(list, fmt.Sprintf("%d %s", a.Part, a.Outcome))
		}
	}
	return list
}

// wantFilm checks that a film was divided and published whole.
func (s *remoteSite) wantFilm(tr Transcode, p Publish) {
	s.t.Helper()
	if tr.Chunks != 4 || tr.Undivided != "" || tr.Output.Expected != 200 || tr.Output.Duration < 19.9 || tr.Output.Duration > 20.2 {
		s.t.Errorf("the result is %+v, its output %+v", tr, tr.Output)
	}
	wantPlayable(s.t, filepath.Join(s.PublishDir, p.Master), slices.Concat(tr.Output.Video, tr.Output.Audio))
}

var outcomesOfFilm = []string{
	"0 divided", "1 completed", "2 completed", "3 completed", "4 completed", "5 completed", "0 completed",
}

func TestTranscode_JoinsChunks(t *testing.T) {
	t.Parallel()
	s := newChunkSite(t, nil)
	s.workLocally()
	task := s.submit(film(t))
	s.wantFilm(s.waitPublished(task))
	if got := s.outcomes(task); !slices.Equal(got, outcomesOfFilm) {
		t.Errorf("the attempts are %q", got)
	}
	for _, name := range list(t, s.TaskDir(task)) {
		if strings.HasPrefix(name, chunkPrefix) {
			t.Errorf("%s has stayed", name)
		}
	}
}

func TestTranscode_JoinsChunksOfHostsThatShareABucket(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t, s3test.Options{})
	server.MakeBucket(t, "videos")
	open := func() *Bucket {
		b, err := OpenBucket("s3://videos/data", server.Env())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		return b
	}
	s := newChunkSite(t, open())
	var mu sync.Mutex
	hosts := make(map[int]bool)
	for host := range 2 {
		c := s.Config
		c.DataDir, c.Bucket = t.TempDir(), open()
		list := Stages(c)
		part := list[1].Part
		list[1].Part = func(ctx context.Context, job *stages.Job) (any, error) {
			mu.Lock()
			hosts[host] = true
			mu.Unlock()
			return part(ctx, job)
		}
		s.run(stages.Runner{Pool: s.pool, Pipeline: pipelineOf(t, list)})
	}
	task := s.submit(film(t))
	s.wantFilm(s.waitPublished(task))
	if len(hosts) != 2 {
		t.Errorf("the hosts %v made chunks", hosts)
	}
	kept, err := s.Bucket.storage.ListArtifacts(t.Context(), "tasks/"+task.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range kept {
		if strings.Contains(a.Name, "/"+chunkPrefix+"-") {
			t.Errorf("%s has stayed", a.Name)
		}
	}
}

func TestRemoteStages_MakeChunks(t *testing.T) {
	t.Parallel()
	s := newChunkSite(t, nil)
	s.workLocally(RemoteStageNames()...)
	s.workRemotely(s.url, "key-1")
	s.workRemotely(s.url, "key-2")
	task := s.submit(film(t))
	s.wantFilm(s.waitPublished(task))
	history, err := s.History(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	parts := make(map[int]string)
	for _, a := range history {
		if a.Part > 0 && a.Outcome == "completed" {
			parts[a.Part] = a.Worker.String()
		}
	}
	workers := slices.Compact(slices.Sorted(maps.Values(parts)))
	if len(parts) != 5 || len(workers) != 2 {
		t.Errorf("the parts were done by %v", parts)
	}
	if len(s.refusals) > 0 || len(s.failures) > 0 {
		t.Errorf("refused %q, failed %v", s.refusals, s.failures)
	}
}

func TestTranscode_SaysWhyItIsNotDivided(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		length time.Duration
		change func(in *Ingest)
		want   string
	}{
		"shorter than two chunks": {30 * time.Second, nil, "it is shorter than two chunks"},
		"never":                   {-1, nil, "the ingesting process divides no transcode"},
		"older version":           {6 * time.Second, func(in *Ingest) { in.Chunks = nil }, "the source was ingested by an older version"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newRemoteSite(t)
			s.ChunkLength = c.length
			s.workWith(ingestStage, func(work stages.Work) stages.Work { return changed(work, c.change) })
			task := s.submit(film(t))
			tr, _ := s.waitPublished(task)
			if got := s.outcomes(task); tr.Undivided != c.want || tr.Chunks != 0 || len(got) != 3 {
				t.Errorf("the result is %+v, the attempts %q; want the reason %q", tr, got, c.want)
			}
		})
	}
}

func changed(work stages.Work, change func(in *Ingest)) stages.Work {
	return func(ctx context.Context, job *stages.Job) (any, error) {
		result, err := work(ctx, job)
		if in, ok := result.(Ingest); ok && err == nil && change != nil {
			change(&in)
			return in, nil
		}
		return result, err
	}
}

// workWith starts a local worker with a changed function of one stage: its Part, if it has one.
func (s *remoteSite) workWith(stage string, change func(stages.Work) stages.Work) {
	s.t.Helper()
	list := Stages(s.Config)
	for i := range list {
		switch {
		case list[i].Name != stage:
		case list[i].Part != nil:
			list[i].Part = change(list[i].Part)
		default:
			list[i].Work = change(list[i].Work)
		}
	}
	s.run(stages.Runner{Pool: s.pool, Pipeline: pipelineOf(s.t, list)})
}

// The frames of a chunk may differ from those of the packets although ingest tried some of them.
func TestTranscode_IsWholeIfAChunkIsNotExact(t *testing.T) {
	t.Parallel()
	s := newChunkSite(t, nil)
	s.workWith(ingestStage, func(work stages.Work) stages.Work {
		return changed(work, func(in *Ingest) { in.Chunks.Chunks[1].Times = "other" })
	})
	task := s.submit(film(t))
	tr, p := s.waitPublished(task)
	wantPlayable(t, filepath.Join(s.PublishDir, p.Master), slices.Concat(tr.Output.Video, tr.Output.Audio))
	want := slices.Concat(outcomesOfFilm[:6], []string{"0 divided", "1 completed", "0 completed"})
	got, isSaid := s.outcomes(task), strings.Contains(tr.Undivided, "differ from those of the packets")
	if !slices.Equal(got, want) || tr.Chunks != 0 || !isSaid {
		t.Errorf("the result is %+v, the attempts %q", tr, got)
	}
}

func TestTranscode_MakesLostAndDamagedChunksAgain(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(dir string) error{
		"lost":    os.RemoveAll,
		"damaged": func(dir string) error { return os.Truncate(filepath.Join(dir, "240p", "seg-00001.m4s"), 700) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newChunkSite(t, nil)
			var once sync.Once
			s.workWith(transcodeStage, func(part stages.Work) stages.Work {
				return func(ctx context.Context, job *stages.Job) (any, error) {
					result, err := part(ctx, job)
					if job.Part == 3 && err == nil {
						once.Do(func() { err = damage(filepath.Join(s.TaskDir(job.Task), result.(Chunk).Dir)) })
					}
					return result, err
				}
			})
			task := s.submit(film(t))
			s.wantFilm(s.waitPublished(task))
			want := slices.Concat(outcomesOfFilm[:6], []string{"0 divided", "3 completed", "0 completed"})
			if got := s.outcomes(task); !slices.Equal(got, want) {
				t.Errorf("the attempts are %q", got)
			}
		})
	}
}

func TestIngest_DividesNothingShorterThanMinDivided(t *testing.T) {
	t.Parallel()
	h := newHarness(t, film(t))
	h.ChunkLength, h.MinDivided = 6*time.Second, 21*time.Second
	if in := h.mustIngest(); len(in.Chunks.Chunks) > 0 || in.Chunks.Reason != "it is shorter than 21s" {
		t.Errorf("the plan is %+v", in.Chunks)
	}
}
