package media

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strconv"
)

const (
	// sampleFrames is how many frames are looked at for interlacing, and
	// fewFrames how many prove that a stream can be decoded at all.
	sampleFrames      = 120
	decodeCheckFrames = 5
	// combed is the share of frames that must look interlaced in a source that
	// says it is: film brought to 30 frames by pulldown has two in five. One
	// that says nothing needs half, and to refute "progressive" nearly all
	// must: moving patterns may look like interlacing.
	interlacedShare, interlacedShareUnknown, interlacedShareProgressive = 0.3, 0.5, 0.95
	// sameParity is the share of those frames that must agree on the order.
	sameFieldOrderShare = 0.9
)

// sample decodes the beginning of each stream, to find out now what could
// never be transcoded, and looks whether the picture is interlaced.
func (t Tools) sample(ctx context.Context, abs, url string, info *Info) error {
	if info.Video != nil {
		if err := t.sampleVideo(ctx, abs, url, info); err != nil {
			return err
		}
	}
	if len(info.Audio) > 0 {
		return t.sampleAudio(ctx, abs, url, info)
	}
	return nil
}

// sampleVideo refuses a picture that cannot be decoded, finds its first frame, and
// decides about interlacing from frames: headers are often wrong, in both directions.
func (t Tools) sampleVideo(ctx context.Context, abs, url string, info *Info) error {
	v := info.Video
	look := mayBeInterlaced(v)
	start := 0.0
	if look && info.Duration > 30 {
		// Openings are often black, and black says nothing.
		start = info.Duration / 3
	}
	seen, tail, err := t.decodeFrames(ctx, abs, url, info, start, look)
	if err == nil && seen.frames == 0 && start > 0 {
		seen, tail, err = t.decodeFrames(ctx, abs, url, info, 0, look)
	}
	if err != nil {
		return err
	}
	if seen.frames == 0 {
		return &RejectedError{Reason: fmt.Sprintf("not one frame of its %s video could be decoded", v.Codec), Detail: tail}
	}
	if look {
		halved := seen.packetsAreFields(v)
		v.Interlaced, v.TopFirst = seen.fieldOrder(v)
		if halved {
			v.Frames, v.Keyframes, v.FPS, v.MinGap = (v.Frames+1)/2, (v.Keyframes+1)/2, v.FPS/2, 2*v.MinGap
		}
	}
	if start > 0 {
		if seen, _, err = t.decodeFrames(ctx, abs, url, info, 0, false); err != nil {
			return err
		}
	}
	if seen.frames > 0 {
		info.setFirstDecodable(seen.first)
	}
	return nil
}

const (
	// longestGroup is the longest time between two keyframes, in seconds, that a
	// recording may have begun in; where more cannot be decoded, it is damaged.
	maxGOPSeconds = 12.0
	// maxEarly is how much earlier than it should a first frame may be shown.
	maxFirstFrameShift = 0.25
)

// beginAt takes note of the first frame that can be decoded, where the packets
// begin earlier. Without sound, nothing is shown before it.
func (i *Info) setFirstDecodable(first float64) {
	v := i.Video
	late := first - v.Start
	if !(late >= max(maxFirstFrameShift, 2*frameTime(v)) && late <= min(maxGOPSeconds, v.Duration)) {
		return
	}
	v.Undecodable = late
	i.warn("the first %.1f s of the picture cannot be decoded", late)
	if skip := first - i.Start; len(i.Audio) == 0 && skip > 0 {
		i.Start += skip
		i.Duration -= skip
	}
}

// decodable is how many of the frames a sound decoder should give.
func (v *Video) decodableFrames() int64 { return v.Frames - int64(math.Round(v.Undecodable*v.FPS)) }

// listenFor is how much sound is decoded for a sample, in seconds.
const audioSampleSeconds = 20

// sampleAudio leaves out streams of which nothing can be decoded. Transcoded,
// they would be silence.
func (t Tools) sampleAudio(ctx context.Context, abs, url string, info *Info) error {
	args := []string{"-nostdin", "-hide_banner", "-loglevel", "repeat+level+error"}
	args = append(args, t.threads()...)
	args = append(args, input(url, probedInputOptions(info, t.probeDecoders)...)...)
	for _, a := range info.Audio {
		args = append(args, "-map", "0:"+strconv.Itoa(a.Index))
	}
	args = append(args, "-t", strconv.Itoa(audioSampleSeconds), "-max_error_rate", "1", "-f", "framecrc", "-")
	heard := map[int]bool{}
	lines := &lineWriter{line: func(line []byte) {
		stream, _, ok := bytes.Cut(line, []byte(","))
		if n, err := strconv.Atoi(string(stream)); ok && err == nil {
			heard[n] = true
		}
	}}
	out, err := t.run(ctx, command{tool: "ffmpeg", purpose: "hear sample", args: args, source: abs, stdout: lines})
	if err := ignoreSourceErrors(out, err); err != nil {
		return err
	}
	lines.Flush()
	kept := info.Audio[:0:0]
	for i, a := range info.Audio {
		// One that begins late had no chance to be heard.
		if late := a.Start-info.Start > audioSampleSeconds/2; heard[i] || late {
			a.Default = len(kept) == 0
			kept = append(kept, a)
			continue
		}
		info.warn("the audio stream %d is left out: it could not be decoded", a.Index)
	}
	info.Audio = kept
	if len(kept) == 0 && info.Video == nil {
		return &RejectedError{Reason: "its sound could not be decoded", Detail: out.tail}
	}
	return nil
}

// maybeInterlaced saves the longer look for sources that leave doubt: a header
// that says so, or a codec and size in use for interlaced video.
func mayBeInterlaced(v *Video) bool {
	if v.Interlaced {
		return true
	}
	if v.FPS > 31 {
		return false
	}
	switch v.CodedHeight {
	case 480, 486, 512, 576, 608, 1080, 1088:
	default:
		return false
	}
	switch v.Codec {
	case "mpeg2video", "h264", "hevc", "mpeg4", "vc1", "dvvideo", "prores", "dnxhd", "mjpeg", "ffv1", "huffyuv", "rawvideo", "v210":
		return true
	}
	return false
}

// look decodes frames from start on. A stream that cannot be decoded gives an
// empty census and no error.
func (t Tools) decodeFrames(ctx context.Context, abs, url string, info *Info, start float64, interlaced bool) (frameSample, string, error) {
	args := []string{"-nostdin", "-hide_banner", "-loglevel", "repeat+level+error"}
	args = append(args, t.threads()...)
	options := probedInputOptions(info, t.probeDecoders)
	if start > 0 {
		options = append(options, "-ss", strconv.FormatFloat(start, 'f', 3, 64))
	}
	if start == 0 {
		args = append(args, "-copyts") // the first frame's time is to be its packet's
	}
	args = append(args, input(url, options...)...)
	frames := decodeCheckFrames
	if interlaced {
		frames = sampleFrames
	}
	// Only frames that have metadata are printed, and idet gives them some.
	args = append(args, "-map", "0:"+strconv.Itoa(info.Video.Index), "-vf", "idet,metadata=mode=print:file=-",
		"-frames:v", strconv.Itoa(frames), "-f", "null", "-")
	reader := newFrameSampleReader()
	out, err := t.run(ctx, command{tool: "ffmpeg", purpose: "see sample", args: args, source: abs, stdout: reader})
	if err := ignoreSourceErrors(out, err); err != nil {
		return frameSample{}, "", err
	}
	reader.lines.Flush()
	return reader.frameSample, out.tail, nil
}

func (t Tools) threads() []string {
	if t.Threads <= 0 {
		return nil
	}
	n := strconv.Itoa(t.Threads)
	return []string{"-threads", n, "-filter_threads", n, "-filter_complex_threads", n}
}

// census is what a look at some frames found.
type frameSample struct {
	frames                   int
	first, last              float64 // the first and the last frame's time
	top, bottom, progressive float64
}

// verdict weighs the frames that showed anything; a still picture shows
// nothing, and then the header has to do.
func (c frameSample) fieldOrder(v *Video) (interlaced, top bool) {
	needed := interlacedShareUnknown
	switch {
	case v.Interlaced:
		needed = interlacedShare
	case v.taggedProgressive:
		needed = interlacedShareProgressive
	}
	told := c.top + c.bottom + c.progressive
	if told < 8 {
		return v.Interlaced, v.TopFirst
	}
	interlaced = c.top+c.bottom >= needed*told
	if !v.Interlaced && max(c.top, c.bottom) < sameFieldOrderShare*(c.top+c.bottom) {
		// Fields have one order throughout; patterns have none.
		interlaced = false
	}
	return interlaced, interlaced && c.top >= c.bottom
}

// halved says that each packet is a field, so that two make a frame, as in H.264 of
// interlaced broadcasts. The header of such says that it is interlaced; in others,
// frames may come more slowly here than elsewhere.
func (c frameSample) packetsAreFields(v *Video) bool {
	if !v.Interlaced || c.frames < sampleFrames/4 {
		return false
	}
	packets := (c.last - c.first) * v.FPS / float64(c.frames-1)
	return math.Abs(packets-2) < 0.1
}

// censusReader reads what ffmpeg's metadata filter prints. The counts of idet
// add up from frame to frame, so the last ones hold.
type frameSampleReader struct {
	lines lineWriter
	frameSample
}

func newFrameSampleReader() *frameSampleReader {
	r := &frameSampleReader{frameSample: frameSample{first: math.NaN()}}
	r.lines.line = r.line
	return r
}

func (r *frameSampleReader) Write(b []byte) (int, error) { return r.lines.Write(b) }

func (r *frameSampleReader) line(line []byte) {
	if bytes.HasPrefix(line, []byte("frame:")) {
		r.frames++
		_, value, _ := bytes.Cut(line, []byte("pts_time:"))
		if at, ok := jsonNumber(bytes.TrimSpace(value)).seconds(); ok {
			r.last = at
			if r.frames == 1 {
				r.first = at
			}
		}
		return
	}
	key, value, ok := bytes.Cut(line, []byte("="))
	if !ok {
		return
	}
	v, ok := jsonNumber(value).seconds()
	if !ok || v < 0 {
		return
	}
	switch string(key) {
	case "lavfi.idet.multiple.tff":
		r.top = v
	case "lavfi.idet.multiple.bff":
		r.bottom = v
	case "lavfi.idet.multiple.progressive":
		r.progressive = v
	}
}
