package media

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	// posterSide is the longest side of a poster, in pixels.
	posterSide = 1280
	// posterWindow is how many frames are compared at each position.
	posterWindow = 48
)

// posterPositions are shares of the duration.
var posterPositions = [...]float64{0.1, 0.25, 0.5}

// Poster atomically writes a JPEG of one meaningful frame to file, no side longer
// than 1280 pixels. At a few positions it selects the frame most similar to its
// neighbours, and of those the one with the most detail, which is rarely black,
// blurred or within a fade. For audio with an embedded cover it is the cover. A
// source with neither gives [ErrNoPicture].
func (t Tools) Poster(ctx context.Context, src string, info *Info, file string) error {
	return t.PosterAt(ctx, src, info, math.Inf(1), file)
}

// PosterAt is [Tools.Poster] with the first frame from that many seconds after the start of the picture on.
// After the end, or where none can be decoded, it selects the frame as Poster does.
func (t Tools) PosterAt(ctx context.Context, src string, info *Info, at float64, file string) error {
	ctx, cancel := t.withTimeLimit(ctx, info.decodedSeconds())
	defer cancel()
	if err := t.withStepCounter().poster(ctx, src, info, at, file); err != nil {
		return fmt.Errorf("make poster: %w", err)
	}
	return nil
}

func (t Tools) poster(ctx context.Context, src string, info *Info, at float64, file string) error {
	source, err := filepath.Abs(src)
	if err != nil {
		return err
	}
	t = t.joining(source, info)
	if info.Video == nil && info.Cover < 0 {
		return ErrNoPicture
	}
	c, err := t.capabilities(ctx)
	if err != nil {
		return err
	}
	return replaceFile(file, func(work string) (string, error) {
		return t.bestFrame(ctx, source, work, posterRequests(info, at, c))
	})
}

// replaceFile replaces a file by the one that do makes in a new directory next to it.
func replaceFile(file string, do func(dir string) (made string, err error)) error {
	work, err := os.MkdirTemp(filepath.Dir(file), ".poster-")
	if err != nil {
		return spaceError(err)
	}
	defer os.RemoveAll(work)
	made, err := do(work)
	if err != nil {
		return err
	}
	if err := os.Chmod(made, 0o644); err != nil {
		return err
	}
	return os.Rename(made, file)
}

// RewritePoster decodes a poster that an untrusted worker made, and atomically replaces it by a new JPEG of the
// picture, no side longer than 1280 pixels: viewers get no byte of the worker's. A file that cannot be decoded
// without an error gives [ErrNoPicture].
func (t Tools) RewritePoster(ctx context.Context, file string) error {
	ctx, cancel := t.withTimeLimit(ctx, 0)
	defer cancel()
	err := replaceFile(file, func(work string) (string, error) { return t.rewriteJPEG(ctx, file, work) })
	if err != nil {
		return fmt.Errorf("rewrite poster: %w", err)
	}
	return nil
}

func (t Tools) rewriteJPEG(ctx context.Context, file, dir string) (made string, err error) {
	in, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer in.Close()
	args := t.ffmpegArgs("-xerror", "-err_detect", "explode", "-protocol_whitelist", "pipe", "-max_pixels", strconv.Itoa(maxPixels),
		"-f", "mjpeg", "-i", "pipe:0", "-vf", smallPicture, "-frames:v", "1", "-q:v", "2", "-map_metadata", "-1",
		"-f", "mjpeg", "file:poster.jpg")
	out, err := t.run(ctx, command{tool: "ffmpeg", purpose: "rewrite poster", args: args, dir: dir, stdin: in, noProgress: true})
	exit, err := exitBySource(err)
	if err != nil {
		return "", err
	}
	made = filepath.Join(dir, "poster.jpg")
	if st, err := os.Stat(made); exit != nil || err != nil || st.Size() == 0 {
		return "", out.preferDiskError(fmt.Errorf("%w: the file cannot be decoded", ErrNoPicture))
	}
	return made, nil
}

// smallPicture makes a full-range picture for JPEG of any other, no side longer than posterSide.
var smallPicture = fmt.Sprintf("scale=w='min(%[1]d\\,iw)':h='min(%[1]d\\,ih)':force_original_aspect_ratio=decrease:"+
	"out_range=pc,format=yuvj420p", posterSide)

// bestFrame makes pictures in dir and returns the path of the one with the most detail.
func (t Tools) bestFrame(ctx context.Context, source, dir string, requests []frameRequest) (best string, err error) {
	size := int64(0)
	var withDiskError stderrReport
	for i, request := range requests {
		if request.fallback && best != "" {
			break
		}
		name := fmt.Sprintf("%d.jpg", i)
		out, err := t.writeJPEG(ctx, source, dir, name, request)
		if err != nil {
			return "", err
		}
		if out.diskError != nil {
			withDiskError = out
		}
		picture := filepath.Join(dir, name)
		if st, err := os.Stat(picture); err == nil && st.Size() > size {
			best, size = picture, st.Size()
		}
	}
	if best == "" {
		return "", withDiskError.preferDiskError(fmt.Errorf("%w: no frame could be decoded", ErrNoPicture))
	}
	return best, nil
}

// frameRequest is one attempt to decode a picture.
type frameRequest struct {
	stream  int
	at      float64 // seconds from the start
	filter  string
	options []string // of the input
	// fallback is used only if no other request gave a picture.
	fallback bool
}

func posterRequests(info *Info, wanted float64, c capabilities) []frameRequest {
	if info.Video == nil {
		return []frameRequest{{stream: info.Cover, options: probedInputOptions(info, c.decoders), filter: smallPicture}}
	}
	v := info.Video
	options := append(probedInputOptions(info, c.decoders), alphaDecoder(v, c)...)
	begin := 0.0
	if info.Range != nil {
		begin = planTiming(info).offset
	}
	var list []frameRequest
	add := func(at float64, selection string, isFallback bool) {
		filter := jpegFilter(v, selection, c)
		if info.Range != nil {
			filter = info.Range.filter(at) + "," + filter
		}
		list = append(list, frameRequest{stream: v.Index, at: at, filter: filter, options: options, fallback: isFallback})
	}
	best := fmt.Sprintf("thumbnail=n=%d", posterWindow)
	isWanted := wanted <= v.Duration
	if isWanted {
		wanted = max(min(wanted, v.Duration-1.5*frameTime(v)), 0) // not after the last frame
		add(begin+v.Start-info.Start+wanted, "null", false)
	}
	for _, position := range posterPositions {
		at := v.Start - info.Start + position*v.Duration
		if at*v.FPS < posterWindow {
			// Too short to seek: the last request starts at the beginning.
			continue
		}
		add(begin+at, best, isWanted)
	}
	add(planTiming(info).seek(), best, len(list) > 0)
	return list
}

// jpegFilter makes a full-range picture for JPEG, no side longer than posterSide, of the frame that another filter
// selects.
func jpegFilter(v *Video, selection string, c capabilities) string {
	w, h := v.Width, v.Height
	if longest := max(w, h); longest > posterSide {
		w, h = max(2, w*posterSide/longest), max(2, h*posterSide/longest)
	}
	f := []string{uniformFrames(v)}
	if v.Interlaced {
		f = append(f, deinterlacer(v, c, false))
	}
	f = append(f, orientationFilters(v)...)
	f = append(f, colourFilters(v, Rung{Width: even(float64(w)), Height: even(float64(h))}, c)...)
	if keepsColours(v, c) {
		f = slices.Insert(f, 1, selection)
	} else {
		f = append(f, selection)
	}
	return strings.Join(append(f, jpegColours), ",")
}

// keepsColours reports whether the thumbnail filter, which knows few formats, may get frames before their colours are
// converted. Afterwards it takes longer, because all are converted.
func keepsColours(v *Video, c capabilities) bool {
	known := []string{"yuv420p", "yuvj420p", "yuv422p", "yuvj422p", "yuv444p", "yuvj444p"}
	return !v.Alpha && !v.colours().usesZscale(c) && slices.Contains(known, v.PixelFormat)
}

// jpegColours converts frames of a rendition to the colours of JPEG.
const jpegColours = "scale=flags=bicubic+accurate_rnd+full_chroma_int:in_range=tv:out_range=pc:in_color_matrix=bt709:" +
	"out_color_matrix=bt601,format=yuvj420p"

// writeJPEG writes one JPEG, or none if there is no frame; the exit code does not tell.
func (t Tools) writeJPEG(ctx context.Context, source, dir, name string, s frameRequest) (stderrReport, error) {
	options := append([]string{"-noautorotate"}, s.options...)
	if s.at > 0 {
		options = append(options, "-ss", formatSeconds(s.at))
	}
	args := t.ffmpegArgs(input(source, options...)...)
	args = append(args, "-map", "0:"+strconv.Itoa(s.stream), "-vf", s.filter, "-frames:v", "1", "-q:v", "3",
		"-f", "mjpeg", "file:"+name)
	out, err := t.run(ctx, command{tool: "ffmpeg", purpose: "poster", args: args, dir: dir, source: source, noProgress: true})
	_, err = exitBySource(err)
	return out, err
}
