package media

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// threeChunks is a source of three chunks, with its pieces: the sound, and the chunks from the last to the first.
func threeChunks(t *testing.T) divided {
	t.Helper()
	d := probed(t, makeClip(t, "a.mp4", small("25", 18)+"-f lavfi -i sine=d=18 -c:v libx264 -preset veryfast -g 60 -c:a aac"))
	if d.divide(t, 6*time.Second); len(d.plan.Chunks) != 3 {
		t.Fatalf("%d chunks, %s; want 3", len(d.plan.Chunks), d.plan.Reason)
	}
	d.transcodePieces(t)
	return d
}

func TestJoinChunks_RefusesWrongPieces(t *testing.T) {
	t.Parallel()
	d := threeChunks(t)
	const sound, third, second, first = 0, 1, 2, 3
	file := func(piece int, name string) string { return filepath.Join(d.pieces[piece].Dir, d.rungs[0].Name, name) }
	other, otherPlan := d, *d.plan
	otherPlan.Preset, otherPlan.Headers = "ultrafast", nil
	other.plan = &otherPlan
	for name, c := range map[string]struct {
		chunk  int
		text   string
		change func(t *testing.T, pieces []ChunkPiece) []ChunkPiece
	}{
		"missing chunk": {1, "it is missing", func(t *testing.T, p []ChunkPiece) []ChunkPiece {
			return slices.Delete(p, second, second+1)
		}},
		"missing sound": {-1, "it is missing", func(t *testing.T, p []ChunkPiece) []ChunkPiece { return p[1:] }},
		"chunk that is there twice": {1, "it is there twice", func(t *testing.T, p []ChunkPiece) []ChunkPiece {
			return append(p, p[second])
		}},
		"files of another chunk": {1, "its files are", func(t *testing.T, p []ChunkPiece) []ChunkPiece {
			p[second].Dir = p[first].Dir
			return p
		}},
		"files of another chunk with the right names": {1, "gap of", func(t *testing.T, p []ChunkPiece) []ChunkPiece {
			p[second].Dir = copyDir(t, p[second].Dir)
			copyFile(t, file(first, "seg-00000.m4s"), filepath.Join(p[second].Dir, d.rungs[0].Name, "seg-00001.m4s"))
			return p
		}},
		"swapped chunks": {0, "are not those of the plan", func(t *testing.T, p []ChunkPiece) []ChunkPiece {
			a, b := *p[first].Output, *p[third].Output
			a.Chunk, b.Chunk = b.Chunk, a.Chunk
			p[first].Output, p[third].Output = &a, &b
			return p
		}},
		"chunk of another preset": {1, "it was encoded with", func(t *testing.T, p []ChunkPiece) []ChunkPiece {
			p[second] = other.transcodeChunk(t, 1)
			return p
		}},
		"chunk with other headers": {1, "initialization segment differs", func(t *testing.T, p []ChunkPiece) []ChunkPiece {
			p[second] = other.transcodeChunk(t, 1)
			p[second].Output.Settings = p[first].Output.Settings
			return p
		}},
		"chunk with a frame less": {1, "frames instead of 150", func(t *testing.T, p []ChunkPiece) []ChunkPiece {
			return d.withoutLastFrame(t, p, second)
		}},
		"damaged segment": {2, "wrong length", func(t *testing.T, p []ChunkPiece) []ChunkPiece {
			p[third].Dir = copyDir(t, p[third].Dir)
			if err := os.Truncate(filepath.Join(p[third].Dir, d.rungs[0].Name, "seg-00002.m4s"), 700); err != nil {
				t.Fatal(err)
			}
			return p
		}},
		"sound that has changed": {-1, "has changed", func(t *testing.T, p []ChunkPiece) []ChunkPiece {
			out := *p[sound].Output
			out.Audio = slices.Clone(out.Audio)
			out.Audio[0].Frames--
			p[sound].Output = &out
			return p
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := chunkTools.JoinChunks(t.Context(), d.info, d.rungs, d.plan, c.change(t, slices.Clone(d.pieces)), t.TempDir())
			wrong, ok := errors.AsType[*ChunkError](err)
			if !ok || wrong.Chunk != c.chunk || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%+v, %v; want an error about chunk %d with %q", out, err, c.chunk, c.text)
			}
		})
	}
}

// withoutLastFrame encodes a chunk whose plan has a frame less.
func (d divided) withoutLastFrame(t *testing.T, pieces []ChunkPiece, piece int) []ChunkPiece {
	t.Helper()
	full := d.plan
	plan := *full
	plan.Chunks = slices.Clone(plan.Chunks)
	times, err := newFrameTimes(d.info, d.packets)
	if err != nil {
		t.Fatal(err)
	}
	c := &plan.Chunks[pieces[piece].Output.Chunk]
	i := slices.Index(times.decoded, c.Source)
	end := i + int(c.Decoded) - 1
	c.Decoded--
	c.Frames--
	c.DecodedTimes, c.Times = digestTimes(times.decoded[i:end]), digestTimes(times.shown[i:end])
	next := &plan.Chunks[pieces[piece].Output.Chunk+1]
	next.Source, next.Start = times.decoded[end], times.shown[end]
	d.plan = &plan
	pieces[piece] = d.transcodeChunk(t, pieces[piece].Output.Chunk)
	out := *pieces[piece].Output
	out.Decoded, out.DecodedTimes = full.Chunks[1].Decoded, full.Chunks[1].DecodedTimes // it hides what it lacks
	pieces[piece].Output = &out
	return pieces
}

func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestJoinChunks_ChangesNoPiece(t *testing.T) {
	t.Parallel()
	d := threeChunks(t)
	before := map[string][]byte{}
	for _, p := range d.pieces {
		err := filepath.WalkDir(p.Dir, func(path string, entry os.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				before[path], err = os.ReadFile(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	d.join(t)
	d.join(t) // again, as after a crash
	for path, want := range before {
		if got, err := os.ReadFile(path); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s has changed: %v", path, err)
		}
	}
}

func TestTranscodeChunk_RefusesFramesThatAreNotPlanned(t *testing.T) {
	t.Parallel()
	d := threeChunks(t)
	d.plan.Chunks[1].Seek += 3 // the keyframe after the chunk's start
	_, err := chunkTools.TranscodeChunk(t.Context(), d.src, d.info, d.rungs, d.plan, 1, t.TempDir(), nil)
	if !errors.Is(err, ErrNotDivisible) {
		t.Errorf("%v; want ErrNotDivisible", err)
	}
}

func TestTranscodeChunk_CanBeRepeatedAfterAKill(t *testing.T) {
	t.Parallel()
	d := threeChunks(t)
	ctx, kill := background(t)
	killed := errors.New("killed")
	_, err := chunkTools.TranscodeChunk(ctx, d.src, d.info, d.rungs, d.plan, 1, t.TempDir(), func(Progress) { kill(killed) })
	if err != nil && !errors.Is(err, killed) || err == nil && context.Cause(ctx) == nil {
		t.Fatalf("%v; want it killed", err)
	}
	d.pieces[2] = d.transcodeChunk(t, 1)
	d.join(t)
}

func TestTranscodeChunk_ReportsProgress(t *testing.T) {
	t.Parallel()
	d := threeChunks(t)
	var last Progress
	_, err := chunkTools.TranscodeChunk(t.Context(), d.src, d.info, d.rungs, d.plan, 1, t.TempDir(), func(p Progress) {
		if p.Percent < last.Percent {
			t.Errorf("%v %% after %v %%", p.Percent, last.Percent)
		}
		last = p
	})
	if err != nil || last.Percent != maxPercent || last.Frames != 150 || !isNear(last.Position, 6, 0.01) ||
		last.Encoder != "libx264" {
		t.Errorf("%v, last progress %+v; want all 150 frames and 6 s of the chunk", err, last)
	}
}
