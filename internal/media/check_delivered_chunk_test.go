package media

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// wantPiecesAccepted requires that honest pieces are accepted from a worker, and that they join
// as they did without a check.
func (d divided) wantPiecesAccepted(t *testing.T) {
	t.Helper()
	want := d.result
	checked := d
	checked.pieces = nil
	for _, p := range d.pieces {
		dir := copyDir(t, p.Dir)
		for _, r := range slices.Concat(p.Output.Audio, p.Output.Copies) {
			removeAll(t, filepath.Join(dir, r.Playlist)) // no worker delivers it
		}
		d.wantExpected(t, p.Output.Chunk, dir)
		out, err := chunkTools.CheckDeliveredChunk(t.Context(), d.src, d.info, d.rungs, d.plan, p.Output.Chunk, dir, p.Output)
		if err != nil {
			t.Errorf("honest piece %d: %v", p.Output.Chunk, err)
			return
		}
		claimed := *p.Output
		claimed.Audio, claimed.Copies, claimed.DecodedEnd = out.Audio, out.Copies, out.DecodedEnd
		got, _ := json.Marshal(out)
		if text, _ := json.Marshal(claimed); string(got) != string(text) {
			t.Errorf("piece %s; want %s", got, text)
		}
		checked.pieces = append(checked.pieces, ChunkPiece{dir, out})
	}
	checked.join(t)
	if checked.out.Expected != want.out.Expected || !isNear(checked.out.DecodedEnd, want.out.DecodedEnd, 0.1) {
		t.Errorf("%d frames until %f; want %d until %f", checked.out.Expected, checked.out.DecodedEnd, want.out.Expected,
			want.out.DecodedEnd)
	}
	for _, r := range slices.Concat(want.out.Video, want.out.Audio) {
		wantSame(t, filepath.Join(checked.dir, r.Playlist), filepath.Join(want.dir, r.Playlist))
	}
}

// wantExpected requires that the files of a piece are allowed, in number and size, and only those.
func (d divided) wantExpected(t *testing.T, n int, dir string) {
	t.Helper()
	total := int64(0)
	found, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
	for _, file := range found {
		name, _ := filepath.Rel(dir, file)
		st, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		total += st.Size()
		if limit := MaxChunkFileBytes(d.info, d.rungs, d.plan, n, name); st.Size() > limit {
			t.Errorf("%s of piece %d has %d bytes; the limit is %d", name, n, st.Size(), limit)
		}
		for other := range d.plan.Chunks {
			isHere := other == n || n >= 0 && filepath.Base(name) == initName
			if got := MaxChunkFileBytes(d.info, d.rungs, d.plan, other, name) > 0; got != isHere {
				t.Errorf("%s of piece %d is expected of chunk %d: %v", name, n, other, got)
			}
		}
	}
	if limit := MaxChunkTotalBytes(d.info, d.rungs, d.plan, n); total > limit || total == 0 {
		t.Errorf("piece %d has %d bytes; the limit is %d", n, total, limit)
	}
}

// movingChunks is a source of three chunks in two sizes, in which everything moves.
func movingChunks(t *testing.T) divided {
	t.Helper()
	d := probed(t, makeClip(t, "a.mp4", movingClip))
	d.rungs = Ladder(d.info)
	if d.divide(t, 6*time.Second); len(d.plan.Chunks) != 3 || len(d.rungs) < 3 {
		t.Fatalf("%d chunks, %d rungs, %s", len(d.plan.Chunks), len(d.rungs), d.plan.Reason)
	}
	return d
}

const (
	movingClip = "-f lavfi -i testsrc2=s=480x360:r=25:d=18 -f lavfi -i " + chirp + ":d=18" + closedGroups + "-c:a aac"
	// closedGroups makes keyframes at the same frames in every source.
	closedGroups = " -c:v libx264 -preset ultrafast -g 50 -sc_threshold 0 -pix_fmt yuv420p "
)

func (d divided) check(t *testing.T, n int, dir string) (*ChunkOutput, error) {
	t.Helper()
	return chunkTools.CheckDeliveredChunk(t.Context(), d.src, d.info, d.rungs, d.plan, n, dir, nil)
}

// forgeChunk encodes a chunk from another source that has frames at the same times.
func (d divided) forgeChunk(t *testing.T, n int, args string) string {
	t.Helper()
	args = strings.ReplaceAll(args, "SRC", d.src)
	forged := makeClip(t, "forged.mp4", args+closedGroups+"-crf 12 -an")
	dir := t.TempDir()
	if _, err := chunkTools.TranscodeChunk(t.Context(), forged, d.info, d.rungs, d.plan, n, dir, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestCheckDeliveredChunk_RefusesWrongContent(t *testing.T) {
	t.Parallel()
	d := movingChunks(t)
	for _, f := range []struct{ name, args, word string }{
		{"black frames", "-i SRC -vf drawbox=c=black:t=fill", "of the source"},
		{"another video", "-f lavfi -i mandelbrot=s=480x360:r=25 -t 18", "of the source"},
		{"the chunk before", "-i SRC -vf tpad=start_mode=clone:start_duration=6,trim=end=18", "of the source"},
		{"pictures two seconds later", "-i SRC -vf tpad=start_mode=clone:start_duration=2,trim=end=18", "of the source"},
		{"a frozen picture", "-i SRC -vf trim=start=7,setpts=PTS-STARTPTS,loop=loop=-1:size=1,setpts=N/25/TB,fps=25,trim=end=18",
			"of the source"},
		{"a mirrored picture", "-i SRC -vf hflip", "of the source"},
		{"no colours", "-i SRC -vf hue=s=0", "of the source"},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			_, err := d.check(t, 1, d.forgeChunk(t, 1, f.args))
			wantRefused(t, err, f.word)
		})
	}
}

// Otherwise the join would find that chunk 1 differs, and discard it instead of the wrong one.
func TestCheckDeliveredChunk_RefusesAChunkThatWasMadeWithOtherSettings(t *testing.T) {
	t.Parallel()
	d := movingChunks(t)
	other := *d.plan
	other.Preset, other.Headers = "ultrafast", nil
	dir := t.TempDir()
	if _, err := chunkTools.TranscodeChunk(t.Context(), d.src, d.info, d.rungs, &other, 0, dir, nil); err != nil {
		t.Fatal(err)
	}
	_, err := d.check(t, 0, dir)
	wantRefused(t, err, "other settings or another version")
}

// A worker whose encoder is of another version makes the whole video instead of a chunk that is refused.
func TestTranscodeChunk_SaysThatItsEncoderWritesOtherHeaders(t *testing.T) {
	t.Parallel()
	d := movingChunks(t)
	other := *d.plan
	other.Preset = "ultrafast"
	_, err := chunkTools.TranscodeChunk(t.Context(), d.src, d.info, d.rungs, &other, 0, t.TempDir(), nil)
	if !errors.Is(err, ErrNotDivisible) {
		t.Errorf("error %v; want ErrNotDivisible", err)
	}
}

func TestCheckDeliveredChunk_BelievesNoClaim(t *testing.T) {
	t.Parallel()
	d := threeChunks(t)
	for _, p := range d.pieces {
		clean := func() string {
			dir := copyDir(t, p.Dir)
			removeAll(t, filepath.Join(dir, "audio", playlistName))
			return dir
		}
		want, err := d.check(t, p.Output.Chunk, clean())
		if err != nil {
			t.Fatal(err)
		}
		for _, claimed := range []*ChunkOutput{
			{Chunk: 99, Decoded: -1, DecodedTimes: "x", DecodedEnd: 1e9, DecodeErrors: 1 << 60, Settings: "<b>"},
			{Audio: []Rendition{{Name: "../x"}}, Warnings: []string{"<script>", strings.Repeat("x", 1<<20), approximateColours}},
		} {
			got, err := chunkTools.CheckDeliveredChunk(t.Context(), d.src, d.info, d.rungs, d.plan, p.Output.Chunk, clean(), claimed)
			if err != nil {
				t.Fatal(err)
			}
			a, _ := json.Marshal(got)
			if b, _ := json.Marshal(want); string(a) != string(b) {
				t.Errorf("piece %s; want %s", a, b)
			}
		}
	}
}

func TestCheckDeliveredChunk_RefusesWrongSound(t *testing.T) {
	t.Parallel()
	d := movingChunks(t)
	for _, f := range []struct{ name, args, word string }{
		{"silence", "-i SRC -af volume=0", "silent"},
		{"sound two seconds later", "-i SRC -af adelay=2000:all=1,atrim=end=18", "audio"},
		{"a third of the sound", "-i SRC -t 6", "lasts"},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			forged := makeClip(t, "forged.mp4", "-f lavfi -i color=s=64x64:r=25:d=18 "+strings.ReplaceAll(f.args, "SRC", d.src)+
				" -map 0:v -map 1:a -c:v libx264 -c:a aac")
			info, err := chunkTools.Probe(t.Context(), forged)
			if err != nil {
				t.Fatal(err)
			}
			if f.name == "a third of the sound" {
				info.Video.Duration, info.Duration = 6, 6 // it is not padded
			}
			dir := t.TempDir()
			if _, err := chunkTools.TranscodeAudio(t.Context(), forged, info, d.rungs, d.plan, dir, nil); err != nil {
				t.Fatal(err)
			}
			removeAll(t, filepath.Join(dir, "audio", playlistName))
			_, err = d.check(t, -1, dir)
			wantRefused(t, err, f.word)
		})
	}
}

// A chunk of a damaged source is accepted if its worker says that it is damaged, and this host finds the same.
func TestCheckDeliveredChunk_MeasuresDamage(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.avi", small("25", 18)+"-c:v mpeg4 -g 60")
	damage(t, src, 0.6, 3000)
	d := probed(t, src)
	if d.divide(t, 6*time.Second); d.plan.Reason != "" {
		t.Fatal(d.plan.Reason)
	}
	d.transcodePieces(t)
	found := false
	for _, p := range d.pieces {
		out, err := chunkTools.CheckDeliveredChunk(t.Context(), d.src, d.info, d.rungs, d.plan, p.Output.Chunk, copyDir(t, p.Dir),
			p.Output)
		if err != nil {
			t.Fatal(err)
		}
		if (out.DecodeErrors > 0) != (p.Output.DecodeErrors > 0) {
			t.Errorf("chunk %d: %d errors; its worker counted %d", out.Chunk, out.DecodeErrors, p.Output.DecodeErrors)
		}
		found = found || out.DecodeErrors > 0
	}
	if !found {
		t.Error("no chunk is damaged")
	}
}

func TestCheckDeliveredChunk_DoesNotKnowOtherPieces(t *testing.T) {
	t.Parallel()
	d := threeChunks(t)
	silent := *d.info
	silent.Audio = nil
	for _, c := range []struct {
		info *Info
		plan *ChunkPlan
		n    int
	}{{d.info, d.plan, 3}, {d.info, d.plan, -2}, {d.info, &ChunkPlan{Reason: "x"}, 0}, {d.info, &ChunkPlan{}, -1}, {&silent, d.plan, -1}} {
		_, err := chunkTools.CheckDeliveredChunk(t.Context(), d.src, c.info, d.rungs, c.plan, c.n, t.TempDir(), nil)
		if refused := (*RefusedError)(nil); err == nil || errors.As(err, &refused) {
			t.Errorf("piece %d: %v; want an error that blames nobody", c.n, err)
		}
		if MaxChunkFileBytes(c.info, d.rungs, c.plan, c.n, d.rungs[0].Name+"/"+initName) > 0 ||
			MaxChunkTotalBytes(c.info, d.rungs, c.plan, c.n) > 0 {
			t.Errorf("files of piece %d are expected", c.n)
		}
	}
}
