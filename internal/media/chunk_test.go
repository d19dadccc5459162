package media

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// divided is a source that was transcoded in chunks.
type divided struct {
	result
	packets *Packets
	rungs   []Rung
	plan    *ChunkPlan
	pieces  []ChunkPiece
}

// chunkTools have B-frames, which delay the picture.
var chunkTools = Tools{Preset: "veryfast", Threads: 1, Cache: &CapabilityCache{}}

// smallLadder has the smallest picture and the sound.
func smallLadder(info *Info) []Rung {
	rungs := Ladder(info)
	i := slices.IndexFunc(rungs, Rung.IsAudio)
	if i < 0 {
		i = len(rungs)
	}
	return rungs[max(i-1, 0):]
}

// probed prepares a divided transcode.
func probed(t *testing.T, src string) divided {
	t.Helper()
	info, packets, err := chunkTools.ProbePackets(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	return divided{result: result{src: src, info: info}, packets: packets, rungs: smallLadder(info)}
}

// divide makes a plan and passes it through JSON.
func (d *divided) divide(t *testing.T, length time.Duration) {
	t.Helper()
	plan, err := chunkTools.PlanChunks(t.Context(), d.src, d.info, d.packets, d.rungs, ChunkOptions{Length: length})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	if limit := 350 * (len(plan.Chunks) + 1); len(text) > limit {
		t.Errorf("a plan of %d chunks has %d bytes; want at most %d", len(plan.Chunks), len(text), limit)
	}
	d.plan = &ChunkPlan{}
	if err := json.Unmarshal(text, d.plan); err != nil {
		t.Fatal(err)
	}
}

// transcodePieces makes all pieces of the plan, the last one first.
func (d *divided) transcodePieces(t *testing.T) {
	t.Helper()
	d.pieces = nil
	if len(d.info.Audio) > 0 {
		dir := t.TempDir()
		out, err := chunkTools.TranscodeAudio(t.Context(), d.src, d.info, d.rungs, d.plan, dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		d.pieces = append(d.pieces, ChunkPiece{dir, out})
	}
	for n := range d.plan.Chunks {
		d.pieces = append(d.pieces, d.transcodeChunk(t, len(d.plan.Chunks)-1-n))
	}
}

func (d *divided) transcodeChunk(t *testing.T, n int) ChunkPiece {
	t.Helper()
	dir := t.TempDir()
	out, err := chunkTools.TranscodeChunk(t.Context(), d.src, d.info, d.rungs, d.plan, n, dir, nil)
	if err != nil {
		t.Fatalf("%v\nchunk %+v", err, d.plan.Chunks[n])
	}
	return ChunkPiece{dir, out}
}

// join joins the pieces, checks the result, and writes the playlists.
func (d *divided) join(t *testing.T) {
	t.Helper()
	d.dir = t.TempDir()
	var err error
	if d.out, err = chunkTools.JoinChunks(t.Context(), d.info, d.rungs, d.plan, d.pieces, d.dir); err != nil {
		t.Fatal(err)
	}
	d.complete(t)
}

// whole makes the undivided transcode.
func (d divided) whole(t *testing.T) result {
	t.Helper()
	r := result{src: d.src, dir: t.TempDir(), info: d.info}
	var err error
	if r.out, err = chunkTools.Transcode(t.Context(), d.src, d.info, d.rungs, r.dir, nil); err != nil {
		t.Fatal(err)
	}
	r.complete(t)
	return r
}

func (r result) complete(t *testing.T) {
	t.Helper()
	if err := chunkTools.Check(t.Context(), r.info, r.dir, r.out); err != nil {
		t.Fatalf("%v\ninfo %+v\nvideo %+v\nout %+v", err, r.info, r.info.Video, r.out)
	}
	if err := chunkTools.WriteManifests(t.Context(), r.dir, r.out); err != nil {
		t.Fatal(err)
	}
}

// frameTiming is how the frames of a rendition are presented.
type frameTiming struct {
	segments  []int   // frames of each segment
	times     []int64 // of all frames, from the start
	keyframes []int64 // presentation times
	decode    []int64 // first of each segment
}

func timingOf(t *testing.T, dir string, r Rendition) frameTiming {
	t.Helper()
	var list frameTiming
	s, err := Tools{}.inspect(t.Context(), dir, r.Playlist)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range s.segments {
		times, err := segmentTimes(filepath.Join(dir, r.Name), g.name)
		if err != nil {
			t.Fatal(err)
		}
		list.segments = append(list.segments, len(times))
		list.decode = append(list.decode, g.firstDTS)
		for _, pts := range times {
			list.times = append(list.times, pts-s.editStart)
		}
	}
	out := tool(t, "ffprobe", "-loglevel", "error", "-select_streams", "v:0", "-skip_frame", "nokey", "-show_entries",
		"frame=pts_time", "-of", "csv=p=0", filepath.Join(dir, r.Playlist))
	for _, f := range fields(string(out)) {
		var seconds float64
		if _, err := fmt.Sscanf(f, "%f", &seconds); err == nil {
			list.keyframes = append(list.keyframes, int64(seconds*1000+0.5))
		}
	}
	return list
}

// wantSame requires that a divided transcode has the same frames at the same times as an undivided one. In
// the undivided one, ffmpeg has moved the first frame of a segment by what it guessed wrongly of a duration.
func (d divided) wantSame(t *testing.T, whole result) {
	t.Helper()
	if d.out.Expected != whole.out.Expected || d.out.Decoded != whole.out.Decoded || d.out.Distinct != whole.out.Distinct {
		t.Errorf("%d frames of %d; undivided %d of %d", d.out.Expected, d.out.Decoded, whole.out.Expected, whole.out.Decoded)
	}
	if !isNear(d.out.Duration, whole.out.Duration, 0.002) || !isNear(d.out.DecodedEnd, whole.out.DecodedEnd, 0.002) {
		t.Errorf("it lasts %.6f s, decoded until %.6f; undivided %.6f, %.6f", d.out.Duration, d.out.DecodedEnd, whole.out.Duration,
			whole.out.DecodedEnd)
	}
	if !slices.Equal(d.out.Warnings, whole.out.Warnings) {
		t.Errorf("warnings %q; undivided %q", d.out.Warnings, whole.out.Warnings)
	}
	for i, r := range whole.out.Video {
		got, want := timingOf(t, d.dir, d.out.Video[i]), timingOf(t, whole.dir, r)
		if !slices.Equal(got.segments, want.segments) {
			t.Errorf("%s: frames of segments %v; undivided %v", r.Name, got.segments, want.segments)
			continue
		}
		first := map[int]bool{}
		at := 0
		for _, n := range got.segments {
			first[at] = true
			at += n
		}
		for k, pts := range got.times {
			if tolerance := int64(0); pts != want.times[k] {
				if first[k] {
					tolerance = int64(d.info.Video.MaxGap * videoTimescale)
				}
				if max(pts-want.times[k], want.times[k]-pts) > tolerance {
					t.Fatalf("%s: frame %d is at %d; undivided %d", r.Name, k, pts, want.times[k])
				}
			}
		}
		if least, at := leastSimilarity(t, filepath.Join(d.dir, r.Playlist), filepath.Join(whole.dir, r.Playlist)); least < 0.9 {
			t.Errorf("%s: the similarity of frame %d to the undivided one is %.3f", r.Name, at, least)
		}
		if len(got.keyframes) != len(want.keyframes) {
			t.Errorf("%s: keyframes at %v; undivided %v", r.Name, got.keyframes, want.keyframes)
		}
	}
}

// leastSimilarity compares two videos frame by frame, and returns the lowest structural similarity.
func leastSimilarity(t *testing.T, a, b string) (least float64, frame int) {
	t.Helper()
	out := ffmpeg(t, "-i", a, "-i", b, "-lavfi", "[0:v]settb=1/25,setpts=N[a];[1:v]settb=1/25,setpts=N[b];[a][b]ssim=stats_file=-",
		"-f", "null", "-")
	least = 2
	for line := range strings.Lines(string(out)) {
		_, text, _ := strings.Cut(line, "All:")
		text, _, _ = strings.Cut(text, " ")
		if v, err := strconv.ParseFloat(text, 64); err == nil && v < least {
			number, _, _ := strings.Cut(strings.TrimPrefix(line, "n:"), " ")
			frame, _ = strconv.Atoi(number)
			least = v
		}
	}
	return least, frame
}

const cfrClip = "-f lavfi -i testsrc2=s=160x120:r=25:d=20 -f lavfi -i sine=d=20 -c:v libx264 " +
	"-preset veryfast -g 70 -c:a aac"

func TestTranscodeChunk_GivesTheUndividedTranscode(t *testing.T) {
	t.Parallel()
	d := probed(t, makeClip(t, "a.mp4", cfrClip))
	whole := d.whole(t)
	d.divide(t, 6*time.Second)
	if len(d.plan.Chunks) != 4 {
		t.Fatalf("%d chunks, %s; want 4", len(d.plan.Chunks), d.plan.Reason)
	}
	d.transcodePieces(t)
	d.join(t)
	d.wantSame(t, whole)
	d.independently(t)
}

// dividedMedia are the test media that are long enough and can be seeked exactly.
var dividedMedia = []string{
	"bbb_720p24_vp8_30s.webm", "editlist_yuv444_1fps_noaudio.mp4", "h264_360p_19s.flv",
	"vfr_360p_17s.mp4", "vtest_576p10_msmpeg4_80s.avi",
}

func TestTranscodeChunk_GivesTheUndividedTranscodeOfTestMedia(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(mediaDir(), "*.*"))
	if err != nil || len(files) == 0 {
		t.Skip("there are no test media")
	}
	for _, src := range files {
		t.Run(filepath.Base(src), func(t *testing.T) {
			info, packets, err := chunkTools.ProbePackets(t.Context(), src)
			if err != nil {
				if slices.Contains(dividedMedia, filepath.Base(src)) {
					t.Error(err)
				}
				return
			}
			if info.Duration > 120 {
				t.Skip("takes minutes, and has nothing that shorter ones do not have")
			}
			d := divided{result: result{src: src, info: info}, packets: packets, rungs: smallLadder(info)}
			var whole *result
			for _, length := range []time.Duration{6 * time.Second, 30 * time.Second} {
				if d.divide(t, length); d.plan.Reason != "" {
					t.Logf("not divided at %v: %s", length, d.plan.Reason)
					continue
				}
				if whole == nil {
					r := d.whole(t)
					whole = &r
				}
				d.transcodePieces(t)
				d.join(t)
				d.wantSame(t, *whole)
				d.wantPiecesAccepted(t)
			}
			if want := slices.Contains(dividedMedia, filepath.Base(src)); want != (whole != nil) {
				t.Errorf("divided: %v; want %v", whole != nil, want)
			}
		})
	}
}
