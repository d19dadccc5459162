package media

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"strings"
)

const (
	// timeSlack is how far sums over many rounded times may differ, in seconds.
	timeSlack = 0.1
	// missingShare and least say how much of the source's length may be missing
	// without a complaint of the decoder to explain it: headers, timestamps
	// and decoders all round in their own ways.
	missingShare   = 0.02
	missingSeconds = 1.0
	// aacFrame is the samples in one frame of sound. There is one of silence in
	// front, and up to one at the end to fill the last.
	aacFrame = 1024.0
)

// Check compares every rendition in dir with the source: that its playlist is
// complete and names files that are there, whole and nothing else; that its
// segments follow each other without holes; that it has every frame that was
// decoded, each rung cut at the same keyframes; that it lasts as long as the
// source does. It reads the files again and believes neither ffmpeg's exit
// code nor out. An error wraps [ErrMismatch] when something is wrong with the
// output: it must be thrown away, and another attempt may do better.
func (t Tools) Check(ctx context.Context, info *Info, dir string, out *Output) error {
	t = t.withStepCounter()
	if len(out.Video)+len(out.Audio) == 0 {
		return fmt.Errorf("check output: %w: it is empty", ErrMismatch)
	}
	if info.Video != nil && len(out.Video) == 0 {
		return fmt.Errorf("check output: %w: it has no picture", ErrMismatch)
	}
	if err := checkNames(dir); err != nil {
		return fmt.Errorf("check output: %w", err)
	}
	if err := checkStoryboard(dir, out.Storyboard); err != nil {
		return fmt.Errorf("check output: %w", err)
	}
	if len(out.Video) > 0 {
		if err := checkDecoded(info, out); err != nil {
			return fmt.Errorf("check output: %w: %w", ErrMismatch, err)
		}
	}
	var first *renditionFiles
	for _, r := range out.Video {
		s, err := t.checkRendition(ctx, dir, r)
		if ctx.Err() != nil {
			return fmt.Errorf("check output: %w", context.Cause(ctx))
		}
		if err == nil {
			err = checkVideo(info, out, r, s, first)
		}
		if err != nil {
			return fmt.Errorf("check %s: %w: %w", r.Name, ErrMismatch, err)
		}
		if first == nil {
			first = s
		}
	}
	for _, r := range out.Audio {
		s, err := t.checkRendition(ctx, dir, r)
		if ctx.Err() != nil {
			return fmt.Errorf("check output: %w", context.Cause(ctx))
		}
		if err == nil {
			err = checkAudio(info, out, r, s)
		}
		if err != nil {
			return fmt.Errorf("check %s: %w: %w", r.Name, ErrMismatch, err)
		}
	}
	return nil
}

// checkNames finds what an interrupted ffmpeg leaves behind.
func checkNames(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if path != dir && (strings.HasSuffix(name, ".tmp") || strings.HasSuffix(name, ".tap") || strings.HasPrefix(name, ".")) {
			return fmt.Errorf("%w: there is an unfinished file %q", ErrMismatch, name)
		}
		return nil
	})
}

// checkDecoded asks whether ffmpeg reached the end of the source. Where the
// decoder complained, Transcode has decided that enough is left.
func checkDecoded(info *Info, out *Output) error {
	v := info.Video
	// Dropping frames for the highest frame rate leaves more than half of it.
	kept := min(float64(out.Decoded), maxFrameRate*out.DecodedEnd)
	if !out.Constant && out.Expected > out.Decoded*v.framesPerDecoded() || float64(out.Expected) < minReadableShare*kept-1 {
		return fmt.Errorf("of %d decoded frames it shows %d", out.Decoded, out.Expected)
	}
	// A first frame that is shown early may take the place of the second. Repeated
	// frames come on top.
	if all := !planTiming(info).dropsFrames && out.DecodeErrors == 0; all && out.Expected < v.framesPerDecoded()*(out.Distinct-1) {
		return fmt.Errorf("of %d decoded frames it shows %d", out.Distinct, out.Expected)
	}
	if out.DecodeErrors > 0 {
		if float64(out.Decoded) < minReadableShare*float64(v.decodableFrames())-1 {
			return fmt.Errorf("only %d of %d frames were decoded", out.Decoded, v.decodableFrames())
		}
		return nil
	}
	// A decoder that gave a frame for every packet reached the end, however long the
	// last one stays.
	end := v.Start - info.Start + v.Duration
	if missing := end - out.DecodedEnd; out.Decoded < v.decodableFrames() && missing > max(missingSeconds, missingShare*v.Duration) {
		return fmt.Errorf("it ends %.1f s before the source", missing)
	}
	// Hidden frames of VP8 and fields that the probe did not know are packets, but not
	// frames; never are they more than half.
	if float64(out.Decoded) < minReadableShare*float64(v.Frames)-1 {
		return fmt.Errorf("only %d of %d frames were decoded, and the decoder did not say why", out.Decoded, v.Frames)
	}
	return nil
}

// checkDir makes sure that a rendition's folder holds what the playlist
// names, and nothing that it forgot.
func checkDir(dir string, r Rendition, s *renditionFiles) error {
	wanted := map[string]bool{path.Base(r.Playlist): true, s.init: true}
	for _, g := range s.segments {
		wanted[g.name] = true
	}
	entries, err := os.ReadDir(filepath.Join(dir, filepath.FromSlash(path.Dir(r.Playlist))))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !wanted[e.Name()] {
			return fmt.Errorf("the playlist does not name %q", e.Name())
		}
	}
	return nil
}

// checkRendition reads a rendition and compares it with what was measured when
// it was made, and its playlist with its segments.
func (t Tools) checkRendition(ctx context.Context, dir string, r Rendition) (*renditionFiles, error) {
	s, err := t.inspect(ctx, dir, r.Playlist)
	if err != nil {
		return nil, err
	}
	if len(s.segments) != r.Segments || s.frames != r.Frames || s.bytes != r.Bytes || s.codecs != r.Codecs {
		return nil, fmt.Errorf("it has changed since it was made")
	}
	if err := checkDir(dir, r, s); err != nil {
		return nil, err
	}
	listed, at := 0.0, s.segments[0].firstDTS
	for i, g := range s.segments {
		if g.firstDTS != at {
			return nil, fmt.Errorf("there is a hole of %.3f s before segment %d", s.seconds(g.firstDTS-at), i)
		}
		at += g.decodeTicks
		listed += g.listedSeconds
		if math.Round(g.listedSeconds) > float64(s.target) {
			return nil, fmt.Errorf("segment %d is longer than the playlist's target duration", i)
		}
		if g.length <= 0 {
			return nil, fmt.Errorf("segment %d lasts no time", i)
		}
		if !g.startsWithKeyframe {
			return nil, fmt.Errorf("segment %d does not start with a keyframe", i)
		}
	}
	if math.Abs(listed-s.duration()) > timeSlack {
		return nil, fmt.Errorf("the playlist says %.3f s, but the segments last %.3f s", listed, s.duration())
	}
	return s, nil
}

func checkVideo(info *Info, out *Output, r Rendition, s, first *renditionFiles) error {
	if s.frames != out.Expected {
		return fmt.Errorf("it has %d frames instead of %d", s.frames, out.Expected)
	}
	if s.width != r.Width || s.height != r.Height {
		return fmt.Errorf("it is %dx%d pixels instead of %dx%d", s.width, s.height, r.Width, r.Height)
	}
	if begin := s.seconds(s.segments[0].firstPTS - s.editStart); math.Abs(begin) > 0.001 {
		return fmt.Errorf("its first frame is at %.3f s", begin)
	}
	want := out.DecodedEnd
	if out.Constant {
		want = max(want, info.Duration)
	}
	if math.Abs(s.duration()-want) > durationTolerance(info, out) {
		return fmt.Errorf("it lasts %.3f s, but the source %.3f s", s.duration(), want)
	}
	if first == nil {
		return nil
	}
	for i, g := range s.segments {
		if len(s.segments) != len(first.segments) || !equalKeyframes(g.keyframes, first.segments[i].keyframes) {
			return fmt.Errorf("its keyframes are not those of the other renditions")
		}
	}
	return nil
}

// durationTolerance is for the last frame, whose duration is a guess in many files.
func durationTolerance(info *Info, out *Output) float64 {
	t := timeSlack + 2*frameTime(info.Video)
	if out.DecodeErrors > 0 {
		t += missingSeconds
	}
	return max(t, info.Video.MaxGap+timeSlack)
}

func equalKeyframes(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func checkAudio(info *Info, out *Output, r Rendition, s *renditionFiles) error {
	var source *Audio
	for i := range info.Audio {
		if info.Audio[i].Index == r.Source {
			source = &info.Audio[i]
		}
	}
	if source == nil {
		return fmt.Errorf("the source has no such stream")
	}
	want := source.Start - info.Start + source.Duration
	if info.Video != nil {
		// Padded with silence up to the end of the picture.
		want = max(want, info.Video.Start-info.Start+info.Video.Duration)
	}
	allowed := max(missingSeconds, missingShare*want)
	if out.DecodeErrors > 0 {
		allowed = max(allowed, (1-minReadableShare)*want)
	}
	got := s.duration() - 2*aacFrame/sampleRate
	if want-got > allowed || got-want > max(missingSeconds, missingShare*want) {
		return fmt.Errorf("it lasts %.3f s, but the source %.3f s", got, want)
	}
	return nil
}
