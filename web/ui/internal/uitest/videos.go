package uitest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/media/captions"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

const (
	pending    = store.StatusPending
	inprogress = store.StatusInProgress
	completed  = store.StatusCompleted
	failed     = store.StatusFailed
	dead       = store.StatusDead
	cancelled  = store.StatusCancelled
)

const (
	second = time.Second
	ms     = time.Millisecond
)

func info(duration float64, width, height int) map[string]any {
	return map[string]any{
		"container": "mov,mp4,m4a,3gp,3g2,mj2", "size": 48234511, "duration": duration,
		"video":     map[string]any{"codec": "h264", "width": width, "height": height, "fps": 25},
		"audio":     []any{map[string]any{"codec": "aac", "channels": 2, "language": "eng"}},
		"subtitles": []any{}, "warnings": []any{"the sound ends 0.4 s before the picture"},
	}
}

// completedStages returns the stages of a completed video.
func completedStages(name string, length float64) [5]stage {
	return [5]stage{
		{status: completed, took: durations{8 * ms, 900 * ms}, result: map[string]any{
			"name": name, "bytes": 48234511, "sha256": "5d41402abc4b2a76b9719d911017c592", "method": "reflink",
			"info": info(length, 1920, 1080)}},
		{status: completed, took: durations{4 * ms, time.Duration(length / 3 * 1e9)}, result: map[string]any{
			"rungs": []any{
				map[string]any{"name": "1080p", "height": 1080}, map[string]any{"name": "720p", "height": 720},
				map[string]any{"name": "480p", "height": 480}, map[string]any{"name": "audio"}}}},
		completedMetadata(),
		{status: completed, took: durations{3 * ms, 1200 * ms}, result: map[string]any{
			"files": 61, "bytes": 31234567, "chapters": []captions.Chapter{
				{Start: 0, End: 1.5, Title: "Departure"},
				{Start: 1.5, End: 3, Title: "Past the lighthouses of the outer islands, in a wind that the harbour master had announced"},
				{Start: 3, End: 5, Title: "The Fjord"},
			},
		}},
		{status: completed, took: durations{2 * ms, 260 * ms}, result: map[string]any{
			"master": "x/master.m3u8", "mp4": "x/gen-0001-k3j9x2mq7b/video.mp4", "files": 64, "bytes": 31310123}},
	}
}

func completedMetadata() stage {
	return stage{status: completed, took: durations{5 * ms, 3400 * ms}, result: map[string]any{"poster": "poster.jpg"}}
}

// partlyDone returns stages of which the first n are completed, followed by then.
func partlyDone(n int, name string, length float64, then ...stage) [5]stage {
	s := completedStages(name, length)
	for i := n; i < len(s); i++ {
		s[i] = stage{status: pending}
	}
	copy(s[n:], then)
	return s
}

const ffmpegError = `ffmpeg ended with exit code 1: ` +
	`/srv/data/tasks/%[1]s/transcode-0001-k3j9x2mq7b/720p/seg-00012.m4s: No space left on device
[hls @ 0x55d0c8a3b1c0] Opening '/srv/data/tasks/%[1]s/transcode-0001-k3j9x2mq7b/720p/seg-00011.m4s' for writing
[hls @ 0x55d0c8a3b1c0] Opening '/srv/data/tasks/%[1]s/transcode-0001-k3j9x2mq7b/720p/seg-00012.m4s' for writing
av_interleaved_write_frame(): No space left on device
frame=  288 fps= 41 q=27.0 size=N/A time=00:00:11.48 bitrate=N/A speed=1.63x
Conversion failed!`

// Seed fills a database of the video pipeline, without its triggers.
func Seed(t testing.TB, pool *pgxpool.Pool) Seeded {
	t.Helper()
	s := &seeder{t: t, pool: pool, now: time.Now().Truncate(ms), running: make(map[store.ID][]store.Running)}
	e := engine.New(pool, store.Video())
	out := Seeded{Keys: s.keys()}
	for i, w := range []store.Worker{
		{Host: "media-1.example.org", Capabilities: []byte(`{"cores": 16, "h264_nvenc": true}`)},
		{Host: "media-2.example.org", Name: "north 1", Principal: out.Keys[0].PrincipalName(),
			Capabilities: []byte(`{"cores": 8, "labels": ["gpu", "north"], "encoders": ["libx264", "h264_nvenc"]}`)},
	} {
		w.PID, w.Version = 4200+i, "v0.6.0"
		id, err := e.RegisterWorker(context.Background(), w)
		if err != nil {
			t.Fatal(err)
		}
		s.workers = append(s.workers, id)
	}
	s.exec(`alter table tasks disable trigger user`)
	s.videos(&out)
	s.exec(`alter table tasks enable trigger user`)
	out.Deleted = s.add(video{source: "/srv/films/Old trailer.mov", age: 90 * time.Minute, stages: completedStages("Old trailer.mov", 30)})
	if err := store.New(pool, store.Video()).Delete(context.Background(), out.Deleted, store.DeleteOptions{By: "anna@media-1"}); err != nil {
		t.Fatal(err)
	}
	for worker, running := range s.running {
		_, err := e.Heartbeat(context.Background(), engine.HeartbeatRequest{Worker: worker, Running: running})
		if err != nil {
			t.Fatal(err)
		}
		s.exec(`update workers set started_at = now() - interval '3 hours' where id = $1`, worker)
	}
	out.Workers = s.workers
	return out
}

// keys makes three keys of the scope work: one in use, one offline, and a disabled one.
func (s *seeder) keys() (keys []access.Key) {
	all := access.NewKeyStore(s.pool)
	for _, name := range []string{"north", "south", "east"} {
		key, _, err := all.CreateKey(context.Background(), name, access.Work.String())
		if err != nil {
			s.t.Fatal(err)
		}
		keys = append(keys, key)
	}
	if _, err := all.DisableKey(context.Background(), keys[2].ID); err != nil {
		s.t.Fatal(err)
	}
	s.exec(`update cuelight_keys set used_at = now() - interval '20 s' where id = $1`, keys[0].ID)
	return keys
}

func (s *seeder) videos(out *Seeded) {
	for i := range 40 { // enough for a second page
		name := fmt.Sprintf("lecture-%02d.mp4", 40-i)
		out.All = append(out.All, s.add(video{
			source: "/srv/films/lectures/" + name, age: time.Duration(68-i)*time.Minute + 13*second,
			stages: completedStages(name, 40+float64(i*7%31)),
		}))
	}
	s.addFailed(out)
	out.Replacement = s.add(video{
		source: "/srv/films/Interview – second cut.mov", user: "newsroom", age: 9 * time.Minute,
		stages: completedStages("Interview – second cut.mov", 95),
	})
	out.Replaced = s.add(video{
		source: "/srv/films/Interview – first cut.mov", user: "newsroom", age: 12 * time.Minute,
		stages: completedStages("Interview – first cut.mov", 95), over: out.Replacement,
	})
	out.Published = s.add(video{
		source: "/srv/films/holiday in norway.mp4", age: 6 * time.Minute,
		stages: completedStages("holiday in norway.mp4", 74),
	})
	s.addUnfinished(out)
	out.All = append(out.All, out.Published, out.Replaced, out.Replacement)
}

// addFailed adds dead and cancelled videos.
func (s *seeder) addFailed(out *Seeded) {
	for i := range 3 {
		name := fmt.Sprintf("flight-%d.mov", i+1)
		text := fmt.Sprintf(ffmpegError, fmt.Sprintf("01a1f8%02x-3d3a-79a9-8ad1-302c5e8ba6ae", i))
		out.Dead = s.add(video{
			source: "/srv/films/drone/" + name, age: time.Duration(26-3*i) * time.Minute,
			stages: partlyDone(1, name, 60, stage{
				status: dead, failed: []string{text, text, text}, class: "no_space", took: durations{5 * ms, 11 * second},
			}, completedMetadata()),
		})
	}
	s.add(video{
		source: "https://films.example.org/encrypted.mp4?token=secret", age: 17 * time.Minute,
		stages: partlyDone(0, "", 10, stage{
			status: dead, failed: []string{"the video is encrypted"}, class: "refused", took: durations{6 * ms, second},
		}),
	})
	gone := stage{status: cancelled}
	out.Cancelled = s.add(video{
		source: "/srv/films/wrong-one.avi", age: 15 * time.Minute,
		stages: partlyDone(1, "wrong-one.avi", 30, gone, gone, gone, gone),
	})
}

// addUnfinished adds retrying, running and ready videos.
func (s *seeder) addUnfinished(out *Seeded) {
	text := strings.ReplaceAll(fmt.Sprintf(ffmpegError, "x"), "No space left on device", "Input/output error")
	out.Retrying = s.add(video{
		source: "/mnt/nas/archive/1998-tape-17.mpg", age: 4 * time.Minute,
		stages: partlyDone(1, "1998-tape-17.mpg", 120, stage{
			status: failed, failed: []string{text, text}, class: "error", took: durations{2 * second, 21 * second},
		}, completedMetadata()),
	})
	out.Running = s.add(video{
		source: "/srv/films/Symphony No. 9, complete recording from the old town hall (final mix 3).mkv", age: 75 * second,
		stages: partlyDone(1, "Symphony.mkv", 180, stage{
			status: inprogress, took: durations{7 * ms, 0}, at: 34, note: "1080p",
		}, completedMetadata()),
	})
	s.add(video{
		source: "/srv/films/keynote.mp4", user: "events", age: 40 * second,
		stages: partlyDone(1, "keynote.mp4", 180,
			stage{status: inprogress, took: durations{9 * ms, 0}, at: 8},
			stage{status: inprogress, took: durations{9 * ms, 0}, at: -1, note: "storyboard"}),
	})
	s.add(video{
		source: "/srv/films/panel-1.mp4", age: 22 * second,
		stages: partlyDone(1, "panel-1.mp4", 180, stage{status: pending}, completedMetadata()),
	})
	for i := range 4 {
		out.Waiting = s.add(video{
			source: fmt.Sprintf("/srv/inbox/panel-%d.mp4", i+2), age: time.Duration(12-i) * second, stages: partlyDone(0, "", 0),
		})
	}
}
