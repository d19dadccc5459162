package uitest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

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

const second = time.Second

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
		{status: completed, took: durations{8 * time.Millisecond, 900 * time.Millisecond}, result: map[string]any{
			"name": name, "bytes": 48234511, "sha256": "5d41402abc4b2a76b9719d911017c592", "how": "reflink", "info": info(length, 1920, 1080)}},
		{status: completed, took: durations{4 * time.Millisecond, time.Duration(length / 3 * 1e9)}, result: map[string]any{
			"rungs": []any{map[string]any{"name": "1080p", "height": 1080}, map[string]any{"name": "720p", "height": 720},
				map[string]any{"name": "480p", "height": 480}, map[string]any{"name": "audio"}}}},
		{status: completed, took: durations{5 * time.Millisecond, 3400 * time.Millisecond}, result: map[string]any{"poster": "poster.jpg"}},
		{status: completed, took: durations{3 * time.Millisecond, 1200 * time.Millisecond}, result: map[string]any{"files": 61, "bytes": 31234567}},
		{status: completed, took: durations{2 * time.Millisecond, 260 * time.Millisecond}, result: map[string]any{
			"master": "x/master.m3u8", "files": 64, "bytes": 31310123}},
	}
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

const ffmpegError = `ffmpeg ended with exit code 1: /srv/data/tasks/%[1]s/transcode-0001-k3j9x2mq7b/720p/seg-00012.m4s: No space left on device
[hls @ 0x55d0c8a3b1c0] Opening '/srv/data/tasks/%[1]s/transcode-0001-k3j9x2mq7b/720p/seg-00011.m4s' for writing
[hls @ 0x55d0c8a3b1c0] Opening '/srv/data/tasks/%[1]s/transcode-0001-k3j9x2mq7b/720p/seg-00012.m4s' for writing
av_interleaved_write_frame(): No space left on device
frame=  288 fps= 41 q=27.0 size=N/A time=00:00:11.48 bitrate=N/A speed=1.63x
Conversion failed!`

// Seed fills a database of the video pipeline, without its triggers.
func Seed(t testing.TB, pool *pgxpool.Pool) Seeded {
	t.Helper()
	s := &seeder{t: t, pool: pool, now: time.Now().Truncate(time.Millisecond), running: make(map[store.ID][]store.Running)}
	st := store.New(pool, store.Video())
	for i, host := range []string{"media-1.example.org", "media-2.example.org"} {
		id, err := engine.New(st.DB(), st.Graph()).RegisterWorker(context.Background(), store.Worker{
			Host: host, PID: 4200 + i, Version: "v0.6.0", Capabilities: []byte(`{"cores": 16, "h264_nvenc": true}`)})
		if err != nil {
			t.Fatal(err)
		}
		s.workers = append(s.workers, id)
	}
	s.exec(`alter table tasks disable trigger user`)
	out := s.videos()
	s.exec(`alter table tasks enable trigger user`)
	for worker, running := range s.running {
		if _, err := engine.New(st.DB(), st.Graph()).Heartbeat(context.Background(), engine.HeartbeatRequest{Worker: worker, Running: running}); err != nil {
			t.Fatal(err)
		}
		s.exec(`update workers set started_at = now() - interval '3 hours' where id = $1`, worker)
	}
	out.Workers = s.workers
	return out
}

func (s *seeder) videos() (out Seeded) {
	for i := range 40 { // enough for a second page
		name := fmt.Sprintf("lecture-%02d.mp4", 40-i)
		out.All = append(out.All, s.add(video{
			source: "/srv/films/lectures/" + name, age: time.Duration(68-i)*time.Minute + 13*second, stages: completedStages(name, 40+float64(i*7%31)),
		}))
	}
	for i := range 3 {
		source := fmt.Sprintf("/srv/films/drone/flight-%d.mov", i+1)
		text := fmt.Sprintf(ffmpegError, fmt.Sprintf("01a1f8%02x-3d3a-79a9-8ad1-302c5e8ba6ae", i))
		out.Dead = s.add(video{source: source, age: time.Duration(26-3*i) * time.Minute, stages: partlyDone(1, fmt.Sprintf("flight-%d.mov", i+1), 60,
			stage{status: dead, failed: []string{text, text, text}, class: "no_space", took: durations{5 * time.Millisecond, 11 * second}},
			completedStages("", 60)[2])})
	}
	s.add(video{source: "https://films.example.org/encrypted.mp4?token=secret", age: 17 * time.Minute, stages: partlyDone(0, "", 10,
		stage{status: dead, failed: []string{"the video is encrypted"}, class: "refused", took: durations{6 * time.Millisecond, second}})})
	out.Cancelled = s.add(video{source: "/srv/films/wrong-one.avi", age: 15 * time.Minute, stages: partlyDone(1, "wrong-one.avi", 30,
		stage{status: cancelled}, stage{status: cancelled}, stage{status: cancelled}, stage{status: cancelled})})
	replacement := video{source: "/srv/films/Interview – second cut.mov", user: "newsroom", age: 9 * time.Minute, stages: completedStages("Interview – second cut.mov", 95)}
	out.Replacement = s.add(replacement)
	old := video{source: "/srv/films/Interview – first cut.mov", user: "newsroom", age: 12 * time.Minute, stages: completedStages("Interview – first cut.mov", 95), over: out.Replacement}
	out.Replaced = s.add(old)
	out.Published = s.add(video{source: "/srv/films/holiday in norway.mp4", age: 6 * time.Minute, stages: completedStages("holiday in norway.mp4", 74)})
	text := strings.ReplaceAll(fmt.Sprintf(ffmpegError, "x"), "No space left on device", "Input/output error")
	out.Retrying = s.add(video{source: "/mnt/nas/archive/1998-tape-17.mpg", age: 4 * time.Minute, stages: partlyDone(1, "1998-tape-17.mpg", 120,
		stage{status: failed, failed: []string{text, text}, class: "error", took: durations{2 * second, 21 * second}}, completedStages("", 60)[2])})
	out.Running = s.add(video{source: "/srv/films/Symphony No. 9, complete recording from the old town hall (final mix 3).mkv", age: 75 * second,
		stages: partlyDone(1, "Symphony.mkv", 180, stage{status: inprogress, took: durations{7 * time.Millisecond, 0}, at: 34, note: "1080p"}, completedStages("", 60)[2])})
	s.add(video{source: "/srv/films/keynote.mp4", user: "events", age: 40 * second, stages: partlyDone(1, "keynote.mp4", 180,
		stage{status: inprogress, took: durations{9 * time.Millisecond, 0}, at: 8}, stage{status: inprogress, took: durations{9 * time.Millisecond, 0}, at: -1, note: "storyboard"})})
	s.add(video{source: "/srv/films/panel-1.mp4", age: 22 * second, stages: partlyDone(1, "panel-1.mp4", 180, stage{status: pending}, completedStages("", 20)[2])})
	for i := range 4 {
		out.Waiting = s.add(video{source: fmt.Sprintf("/srv/inbox/panel-%d.mp4", i+2), age: time.Duration(12-i) * second, stages: partlyDone(0, "", 0)})
	}
	out.All = append(out.All, out.Published, out.Replaced, out.Replacement)
	return out
}
