package media

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// JoinChunks makes of all chunks, and of the audio if the ladder has some, what [Tools.Transcode] makes of the whole
// source. The pieces may be in any order. dir must exist, be empty and belong to this attempt alone. Segments are
// hard links to the files of the pieces; where links are not possible, such as on another file system, they are
// copies. JoinChunks changes no file of a piece.
//
// It reads every segment and verifies that each rendition has exactly the planned frames at the planned times,
// that decoding times continue from chunk to chunk, and that a decoder needs the same headers for all chunks, which
// may be made by different versions of ffmpeg. A [*ChunkError] names the first wrong piece.
func (t Tools) JoinChunks(
	ctx context.Context, info *Info, rungs []Rung, plan *ChunkPlan, pieces []ChunkPiece, dir string,
) (*Output, error) {
	ctx, cancel := t.withTimeLimit(ctx, info.decodedSeconds())
	defer cancel()
	out, err := t.withStepCounter().joinChunks(ctx, info, rungs, plan, pieces, dir)
	if err != nil {
		return nil, fmt.Errorf("join chunks: %w", err)
	}
	return out, nil
}

func (t Tools) joinChunks(
	ctx context.Context, info *Info, rungs []Rung, plan *ChunkPlan, pieces []ChunkPiece, dir string,
) (*Output, error) {
	video, undivided := dividedJobs(info, rungs)
	if info.Video == nil || len(video) == 0 || len(plan.Chunks) == 0 {
		return nil, fmt.Errorf("the plan has no chunks")
	}
	chunks, sound, err := orderPieces(plan, pieces, len(undivided) > 0)
	if err != nil {
		return nil, err
	}
	o := &Output{Video: []Rendition{}, Audio: []Rendition{}, Encoder: softwareEncoder, FrameTimes: info.Video.FrameTimes, Warnings: []string{}}
	if err := o.addPieces(plan, pieces, chunks[0].Output.Settings); err != nil {
		return nil, err
	}
	if o.DecodeErrors > 0 && info.Video.Copy != nil {
		return nil, fmt.Errorf("%w: a source that is damaged is not copied", ErrNotDivisible)
	}
	isMissing := func(j renditionJob) bool { return !isCopy(j) && sound.undividedIn(j) == nil } // it could not be decoded
	undivided = slices.DeleteFunc(undivided, isMissing)
	if err := createRenditionDirs(dir, slices.Concat(video, undivided)); err != nil {
		return nil, err
	}
	for _, j := range undivided {
		r, err := t.joinUndivided(ctx, info, sound, j, dir)
		if err != nil {
			return nil, &ChunkError{audioChunk, fmt.Errorf("%s: %w", j.dir, err)}
		}
		if isCopy(j) {
			o.Video = append(o.Video, r)
		} else {
			o.Audio = append(o.Audio, r)
		}
	}
	for _, j := range video {
		r, err := t.joinRendition(ctx, info, plan, chunks, j, dir)
		if err != nil {
			return nil, err
		}
		o.Video = append(o.Video, r)
	}
	o.summarize()
	if o.Storyboard, err = t.storyboard(ctx, dir, info, o); err != nil {
		return nil, fmt.Errorf("make storyboard: %w", err)
	}
	return o, nil
}

// joinRendition links the segments of all chunks of one rendition, and writes its playlist.
func (t Tools) joinRendition(
	ctx context.Context, info *Info, plan *ChunkPlan, chunks []ChunkPiece, j renditionJob, dir string,
) (Rendition, error) {
	join := renditionJoin{plan: plan, rung: j.rung.Name, to: filepath.Join(dir, j.dir)}
	for n, p := range chunks {
		if err := ctx.Err(); err != nil {
			return Rendition{}, context.Cause(ctx)
		}
		if err := join.add(n, filepath.Join(p.Dir, j.dir)); err != nil {
			return Rendition{}, &ChunkError{n, fmt.Errorf("%s: %w", j.dir, err)}
		}
		t.step()
	}
	name := path.Join(j.dir, playlistName)
	s, err := t.readListed(ctx, join.to, &playlist{init: initName, segments: join.segments})
	if err != nil {
		return Rendition{}, fmt.Errorf("%s: %w", name, err)
	}
	if err := writeFile(filepath.Join(join.to, playlistName), []byte(s.playlist(info.Video.copyTarget()))); err != nil {
		return Rendition{}, fmt.Errorf("write playlist %s: %w", name, err)
	}
	if s, err = t.inspect(ctx, dir, name); err != nil {
		return Rendition{}, err
	}
	return describeRendition(s, j, info, planTiming(info)), nil
}

// renditionJoin verifies and links the segments of one rendition, chunk by chunk.
type renditionJoin struct {
	plan     *ChunkPlan
	to       string
	rung     string
	header   string
	files    renditionFiles
	nextDTS  int64
	segments []playlistEntry
}

// add verifies and links the files of chunk n.
func (r *renditionJoin) add(n int, from string) error {
	names, err := r.chunkFiles(n, from)
	if err != nil {
		return err
	}
	if err := r.addInit(n, from); err != nil {
		return err
	}
	var times []int64
	for _, name := range names {
		g, err := readSegment(filepath.Join(from, name))
		if err == nil {
			err = r.checkStart(g)
		}
		if err != nil {
			return fmt.Errorf("%w: segment %s: %w", ErrMismatch, name, err)
		}
		for _, pts := range g.times {
			times = append(times, pts-r.files.editStart+r.plan.Head[0])
		}
		r.nextDTS = g.firstDTS + g.decodeTicks
		r.segments = append(r.segments, playlistEntry{name: name})
	}
	if err := r.plan.compareTimes(n, times); err != nil {
		return err
	}
	if n == 0 {
		names = append(names, initName)
	}
	return linkFiles(from, r.to, names)
}

// addInit compares the header of a chunk with the plan, and with that of the first one, which is published.
func (r *renditionJoin) addInit(n int, from string) error {
	if err := r.files.readInit(filepath.Join(from, initName)); err != nil {
		return fmt.Errorf("%w: initialization segment: %w", ErrMismatch, err)
	}
	if err := r.plan.checkHeader(r.rung, &r.files); err != nil {
		return err
	}
	header := r.files.headerDigest()
	if n > 0 && header != r.header { // a plan of an older version has none
		return fmt.Errorf("%w: its initialization segment differs from that of chunk 0", ErrMismatch)
	}
	r.header = header
	return nil
}

// checkStart checks that a segment continues the one before it.
func (r *renditionJoin) checkStart(g segment) error {
	switch {
	case g.firstDTS != r.nextDTS:
		return fmt.Errorf("there is a gap of %.6f s before it", r.files.seconds(g.firstDTS-r.nextDTS))
	case !g.startsWithKeyframe:
		return fmt.Errorf("it does not start with a keyframe")
	}
	return nil
}

// compareTimes compares the times of a chunk's frames, read from its segments, with the plan.
func (p *ChunkPlan) compareTimes(n int, times []int64) error {
	c := p.Chunks[n]
	switch {
	case int64(len(times)) != c.Frames:
		return fmt.Errorf("%w: it has %d frames instead of %d", ErrMismatch, len(times), c.Frames)
	case !isIncreasing(times) || digestTimes(times) != c.Times:
		return fmt.Errorf("%w: its frames are not at the times of the plan", ErrMismatch)
	}
	return nil
}

// chunkFiles lists the segments of a chunk. Of the last chunk, the last segment may have been merged into the one
// before it.
func (r *renditionJoin) chunkFiles(n int, from string) ([]string, error) {
	entries, err := os.ReadDir(from)
	if err != nil {
		return nil, err
	}
	c := r.plan.Chunks[n]
	var names, want []string
	for _, e := range entries {
		if e.Name() != initName {
			names = append(names, e.Name())
		}
	}
	for i := range c.Segments {
		want = append(want, segmentName(c.Segment+i))
	}
	if n+1 == len(r.plan.Chunks) && len(names) == len(want)-1 && len(want) > 1 {
		want = want[:len(want)-1]
	}
	slices.SortFunc(names, func(a, b string) int { return segmentNumber(a) - segmentNumber(b) })
	if !slices.Equal(names, want) {
		return nil, fmt.Errorf("%w: its files are %q instead of %q", ErrMismatch, names, want)
	}
	return names, nil
}

// undividedIn is the rendition that the piece with the sound has in a directory; nil if it has none.
func (p *ChunkPiece) undividedIn(j renditionJob) *Rendition {
	list := slices.Concat(p.Output.Copies, p.Output.Audio)
	i := slices.IndexFunc(list, func(r Rendition) bool { return r.Playlist == path.Join(j.dir, playlistName) })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// joinUndivided links the files of an audio rendition or a copy, and measures them again.
func (t Tools) joinUndivided(ctx context.Context, info *Info, piece *ChunkPiece, j renditionJob, dir string) (Rendition, error) {
	claimed := piece.undividedIn(j)
	if claimed == nil {
		return Rendition{}, fmt.Errorf("%w: it is missing", ErrMismatch)
	}
	s, err := t.inspect(ctx, piece.Dir, claimed.Playlist)
	if err != nil {
		return Rendition{}, err
	}
	r := describeRendition(s, j, info, planTiming(info))
	if r.Frames != claimed.Frames || r.Bytes != claimed.Bytes {
		return Rendition{}, fmt.Errorf("%w: it has changed since it was encoded", ErrMismatch)
	}
	names := []string{playlistName, s.init}
	for _, g := range s.segments {
		names = append(names, g.name)
	}
	return r, linkFiles(filepath.Join(piece.Dir, j.dir), filepath.Join(dir, j.dir), names)
}

func linkFiles(from, to string, names []string) error {
	for _, name := range names {
		if err := linkFile(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}

// linkFile makes a hard link, or a copy where that is not possible.
func linkFile(from, to string) (err error) {
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err = io.Copy(out, in); err == nil {
		err = out.Sync()
	}
	return spaceError(errors.Join(err, out.Close()))
}
