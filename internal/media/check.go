package media

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// timeSlack is how far sums of many rounded times may differ, in seconds.
	timeSlack = 0.1
	// missingShare and missingSeconds are how much of the source may be missing
	// without an error of the decoder: headers, timestamps and decoders round in
	// different ways.
	missingShare   = 0.02
	missingSeconds = 1.0
	// aacFrame is the samples in an AAC frame. The output has one of silence at
	// the start, and up to one at the end to fill the last frame.
	aacFrame = 1024.0
)

// Check compares every rendition in dir with the source. It verifies that the
// playlist is complete and names exactly the existing files; that the files are
// complete; that segments follow each other without gaps; that every decoded
// frame is there; that all rungs have the same keyframes; and that the duration
// is that of the source. It reads the files again and trusts neither ffmpeg's
// exit code nor out. An error that wraps [ErrMismatch] means that the output is
// wrong and must be discarded; another attempt may succeed.
func (t Tools) Check(ctx context.Context, info *Info, dir string, out *Output) error {
	return t.withStepCounter().check(ctx, info, dir, out)
}

func (t Tools) check(ctx context.Context, info *Info, dir string, out *Output) error {
	if err := checkOutput(info, dir, out); err != nil {
		return fmt.Errorf("check output: %w", err)
	}
	return t.checkRenditions(ctx, info, dir, out)
}

func (t Tools) checkRenditions(ctx context.Context, info *Info, dir string, out *Output) error {
	var first *renditionFiles
	for _, r := range slices.Concat(out.Video, out.Audio) {
		s, err := t.checkRendition(ctx, dir, r)
		if ctx.Err() != nil {
			return fmt.Errorf("check output: %w", context.Cause(ctx))
		}
		switch {
		case err != nil:
		case r.Group != "":
			err = checkAudio(info, out, r, s)
		default:
			err = checkVideo(info, out, r, s, first)
			first = cmp.Or(first, s)
		}
		if err != nil {
			return fmt.Errorf("check %s: %w: %w", r.Name, ErrMismatch, err)
		}
	}
	return nil
}

// checkOutput checks everything but the content of the renditions.
func checkOutput(info *Info, dir string, out *Output) error {
	if len(out.Video)+len(out.Audio) == 0 {
		return fmt.Errorf("%w: it is empty", ErrMismatch)
	}
	if info.Video != nil && len(out.Video) == 0 {
		return fmt.Errorf("%w: it has no picture", ErrMismatch)
	}
	if err := checkNames(dir); err != nil {
		return err
	}
	if err := checkStoryboard(dir, out.Storyboard); err != nil {
		return err
	}
	if len(out.Video) == 0 {
		return nil
	}
	if err := checkDecoded(info, out); err != nil {
		return fmt.Errorf("%w: %w", ErrMismatch, err)
	}
	return nil
}

// checkNames finds files that an interrupted ffmpeg left.
func checkNames(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if path != dir && (name[0] == '.' || strings.HasSuffix(name, ".tmp") || strings.HasSuffix(name, ".tap")) {
			return fmt.Errorf("%w: there is an unfinished file %q", ErrMismatch, name)
		}
		return nil
	})
}

// checkDecoded checks that ffmpeg reached the end of the source. After decoder errors,
// Transcode has already decided that enough is left.
func checkDecoded(info *Info, out *Output) error {
	v := info.Video
	// Limiting the frame rate keeps more than half of the frames up to the limit.
	kept := min(float64(out.Decoded), maxFrameRate*out.DecodedEnd)
	tooMany := !out.Constant && out.Expected > max(out.Decoded, out.Decoded*v.framesPerDecoded())
	if tooMany || float64(out.Expected) < minReadableShare*kept-1 {
		return fmt.Errorf("of %d decoded frames it has %d", out.Decoded, out.Expected)
	}
	// A first frame that is shown early may replace the second. Repeated frames are
	// extra.
	wantAll := !planTiming(info).dropsFrames && out.DecodeErrors == 0
	if wantAll && out.Expected < v.outputFrames(out.Distinct-1) {
		return fmt.Errorf("of %d decoded frames it has %d", out.Distinct, out.Expected)
	}
	// Frames with times that have passed are lost, unless packets of the source share timestamps.
	lost := float64(out.Decoded-out.Distinct-v.Repeated) * frameTime(v)
	if lost > max(missingSeconds, missingShare*v.Duration) {
		return fmt.Errorf("of %d decoded frames %d have times that have passed", out.Decoded, out.Decoded-out.Distinct)
	}
	if out.DecodeErrors > 0 {
		if float64(out.Decoded) < minReadableShare*float64(v.decodableFrames())-1 {
			return fmt.Errorf("only %d of %d frames were decoded", out.Decoded, v.decodableFrames())
		}
		return nil
	}
	// A decoder that returned a frame for every packet reached the end, however long
	// the last one lasts.
	missing := info.pictureEnd() - out.DecodedEnd
	if out.Decoded < v.decodableFrames() && missing > max(missingSeconds, missingShare*v.Duration) {
		return fmt.Errorf("it ends %.1f s before the source", missing)
	}
	// Hidden frames of VP8, and fields that the probe missed, are packets but not
	// frames. They are never more than half.
	if float64(out.Decoded) < minReadableShare*float64(v.Frames)-1 {
		return fmt.Errorf("only %d of %d frames were decoded, and the decoder reported no error", out.Decoded, v.Frames)
	}
	return nil
}

// pictureEnd is when the picture ends, in seconds from the start of the output.
func (i *Info) pictureEnd() float64 { return i.Video.Start - i.Start + i.Video.Duration }

// checkDir checks that a rendition's directory contains only what its playlist names, and the I-frame playlist.
func checkDir(dir string, r Rendition, s *renditionFiles) error {
	wanted := map[string]bool{path.Base(r.Playlist): true, s.init: true, iframesName: r.Width > 0}
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

// checkRendition reads a rendition and compares it with what Transcode measured, and
// its playlist with its segments.
func (t Tools) checkRendition(ctx context.Context, dir string, r Rendition) (*renditionFiles, error) {
	s, err := t.inspect(ctx, dir, r.Playlist)
	if err != nil {
		return nil, err
	}
	if len(s.segments) != r.Segments || s.frames != r.Frames || s.bytes != r.Bytes || s.codecs != r.Codecs {
		return nil, fmt.Errorf("it has changed since the transcode")
	}
	if err := checkDir(dir, r, s); err != nil {
		return nil, err
	}
	folder := filepath.Join(dir, filepath.FromSlash(path.Dir(r.Playlist)))
	if err := checkPublishedInit(filepath.Join(folder, s.init)); err != nil {
		return nil, fmt.Errorf("initialization segment: %w", err)
	}
	if s.segments[0].firstDTS != 0 {
		return nil, fmt.Errorf("its clock begins at %.3f s", s.seconds(s.segments[0].firstDTS))
	}
	if err := t.checkSamples(ctx, folder, s); err != nil {
		return nil, err
	}
	listed, dts := 0.0, s.segments[0].firstDTS
	for i, g := range s.segments {
		if g.firstDTS != dts {
			return nil, fmt.Errorf("there is a gap of %.3f s before segment %d", s.seconds(g.firstDTS-dts), i)
		}
		dts += g.decodeTicks
		listed += g.listedSeconds
		if math.Round(g.listedSeconds) > float64(s.target) {
			return nil, fmt.Errorf("segment %d is longer than the playlist's target duration", i)
		}
		if g.length <= 0 {
			return nil, fmt.Errorf("segment %d has no duration", i)
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
	if info.Video.Copy != nil {
		if err := s.checkStarts(info.Video, first); err != nil {
			return err
		}
		first = nil
	}
	for i, g := range s.segments {
		if first != nil &&
			(len(s.segments) != len(first.segments) || !slices.Equal(g.keyframes, first.segments[i].keyframes)) {
			return fmt.Errorf("its keyframes differ from those of the other renditions")
		}
	}
	return s.compareTimes(out.FrameTimes)
}

// checkStarts checks that segments begin where the keyframes of a copy do, with the same frame in all renditions. Only a copy has more
// keyframes. ffmpeg may show the first frame of a segment at another time, see segmentStarts.
func (s *renditionFiles) checkStarts(v *Video, first *renditionFiles) error {
	starts, slack, isCopy := v.Copy.Starts, shownSlack+s.ticks(v.MaxGap), v.isCopy(s.width, s.height, s.picture.codec)
	if len(s.segments) != len(starts) {
		return fmt.Errorf("it has %d segments instead of %d", len(s.segments), len(starts))
	}
	for i, g := range s.segments {
		isElsewhere := max(g.start-starts[i], starts[i]-g.start) > slack
		if isElsewhere || !isCopy && len(g.keyframes) != 1 || first != nil && g.frames != first.segments[i].frames {
			return fmt.Errorf("its segment %d is not from the planned keyframe to the next one", i)
		}
	}
	return nil
}

// durationTolerance allows for the last frame, whose duration is a guess in many files.
func durationTolerance(info *Info, out *Output) float64 {
	t := timeSlack + 2*frameTime(info.Video)
	if out.DecodeErrors > 0 {
		t += missingSeconds
	}
	return max(t, info.Video.MaxGap+timeSlack)
}

func checkAudio(info *Info, out *Output, r Rendition, s *renditionFiles) error {
	i := slices.IndexFunc(info.Audio, func(a Audio) bool { return a.Index == r.Source })
	if i < 0 {
		return fmt.Errorf("the source has no such stream")
	}
	if s.editStart != s.segments[0].firstPTS+encoderDelay {
		return fmt.Errorf("it begins at %.3f s of its file", s.seconds(s.editStart-s.segments[0].firstPTS))
	}
	source := info.Audio[i]
	want := source.Start - info.Start + source.Duration
	if info.Video != nil {
		// It is padded with silence until the end of the picture.
		want = max(want, info.pictureEnd())
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
