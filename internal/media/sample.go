package media

import (
	"bytes"
	"context"
	"io"
	"math"
	"strconv"

	"github.com/cuelight/cuelight/internal/childproc"
)

const (
	// sampleFrames is how many frames are decoded to detect interlacing, and
	// decodeCheckFrames to check that a stream can be decoded at all.
	sampleFrames      = 120
	decodeCheckFrames = 5
	// audioSampleSeconds is how much audio is decoded for a sample.
	audioSampleSeconds = 20
	// maxGOPSeconds is the longest GOP in which a recording may have started. If
	// more cannot be decoded, the source is damaged.
	maxGOPSeconds = 12.0
	// maxFirstFrameShift is how much too early a first frame may be shown.
	maxFirstFrameShift = 0.25
)

// sample decodes the beginning of each stream, to reject early what can never be
// transcoded, and detects interlacing and closed captions.
func (t Tools) sample(ctx context.Context, source string, info *Info) error {
	if info.Video != nil {
		if err := t.sampleVideo(ctx, source, info); err != nil {
			return err
		}
		if err := t.readSideData(ctx, source, info); err != nil {
			return err
		}
	}
	if len(info.Audio) > 0 {
		return t.sampleAudio(ctx, source, info)
	}
	return nil
}

// sampleVideo rejects video that cannot be decoded, finds its first decodable
// frame, and detects interlacing from frames, because headers are often wrong.
func (t Tools) sampleVideo(ctx context.Context, source string, info *Info) error {
	v := info.Video
	detect := mayBeInterlaced(v)
	start := 0.0
	if detect && info.Duration > 30 {
		start = info.Duration / 3 // openings are often black, which shows no fields
	}
	frames, tail, err := t.decodeFrames(ctx, source, info, start, detect)
	if err == nil && frames.frames == 0 && start > 0 {
		frames, tail, err = t.decodeFrames(ctx, source, info, 0, detect)
	}
	if err != nil {
		return err
	}
	if frames.frames == 0 {
		return noFrameDecoded(v, tail)
	}
	if detect {
		fieldPackets := frames.packetsAreFields(v)
		v.Interlaced, v.TopFirst = frames.fieldOrder(v)
		if fieldPackets {
			v.Frames, v.Keyframes, v.FPS, v.MinGap = (v.Frames+1)/2, (v.Keyframes+1)/2, v.FPS/2, 2*v.MinGap
		}
	}
	if detect && frames.isTelecined() && v.mayBeTelecined() {
		if v.Telecined, err = t.isTelecinedThroughout(ctx, source, info); err != nil {
			return err
		}
		v.Interlaced, v.TopFirst = v.Interlaced || v.Telecined, frames.top >= frames.bottom
	}
	if start > 0 {
		if frames, _, err = t.decodeFrames(ctx, source, info, 0, false); err != nil {
			return err
		}
	}
	if frames.frames > 0 {
		info.setFirstDecodable(frames.first)
	}
	return nil
}

func noFrameDecoded(v *Video, tail string) *RejectedError {
	return reject(tail, "not one frame of the %s video could be decoded; send an intact copy", v.Codec)
}

func noAudioDecoded(tail string) *RejectedError {
	return reject(tail, "the sound could not be decoded; send an intact copy")
}

// setFirstDecodable records the first decodable frame if packets begin earlier.
// Without audio, the output starts there.
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

// sampleAudio removes streams that cannot be decoded. They would become silence. Sound without timestamps is decoded to
// its end, to measure how long it is.
func (t Tools) sampleAudio(ctx context.Context, source string, info *Info) error {
	args := t.ffmpegArgs(input(source, probedInputOptions(info, t.probeDecoders)...)...)
	for _, a := range info.Audio {
		args = append(args, "-map", "0:"+strconv.Itoa(a.Index))
	}
	if !isUntimed(info) {
		args = append(args, "-t", strconv.Itoa(audioSampleSeconds))
	}
	args = append(args, "-ar", strconv.Itoa(sampleRate), "-max_error_rate", "1", "-f", "framecrc", "-")
	decoded := map[int]int64{} // samples
	lines := childproc.Lines(func(line []byte) {
		fields := bytes.Split(line, []byte(","))
		if len(fields) < 5 {
			return
		}
		n, err := strconv.Atoi(string(fields[0]))
		samples, durationErr := strconv.ParseInt(string(bytes.TrimSpace(fields[3])), 10, 32)
		if err == nil && durationErr == nil {
			decoded[n] += samples
		}
	})
	out, err := t.run(ctx, command{tool: "ffmpeg", purpose: "audio sample", args: args, source: source, stdout: lines})
	if _, err := exitBySource(err); err != nil {
		return err
	}
	kept := info.Audio[:0:0]
	for i, a := range info.Audio {
		// A stream that starts late may have no packets in the sample.
		if late := a.Start-info.Start > audioSampleSeconds/2; decoded[i] > 0 || late {
			a.Default = len(kept) == 0
			if isUntimed(info) {
				a.Start, a.Duration = 0, float64(decoded[i])/sampleRate
			}
			kept = append(kept, a)
			continue
		}
		info.warn("the audio stream %d is left out: it could not be decoded", a.Index)
	}
	info.Audio = kept
	if isUntimed(info) {
		info.Start, info.Duration = 0, 0
		for _, a := range kept {
			info.Duration = max(info.Duration, a.Duration)
		}
	}
	if len(kept) == 0 && info.Video == nil {
		return noAudioDecoded(out.tail)
	}
	return nil
}

// decodeFrames decodes a few frames from start on. A stream that cannot be
// decoded gives an empty sample and no error.
func (t Tools) decodeFrames(
	ctx context.Context, source string, info *Info, start float64, detectInterlacing bool,
) (frameSample, string, error) {
	args := t.ffmpegArgs()
	options := probedInputOptions(info, t.probeDecoders)
	if start > 0 {
		options = append(options, "-ss", strconv.FormatFloat(start, 'f', 3, 64))
	} else {
		args = append(args, "-copyts") // keep the first frame's own timestamp
	}
	args = append(args, input(source, options...)...)
	frames := decodeCheckFrames
	if detectInterlacing {
		frames = sampleFrames
	}
	// The metadata filter prints only frames with metadata; idet adds some.
	args = append(args, "-map", "0:"+strconv.Itoa(info.Video.Index), "-vf", "idet,metadata=mode=print:file=-",
		"-frames:v", strconv.Itoa(frames), "-f", "null", "-")
	reader := newFrameSampleReader()
	out, err := t.run(ctx, command{tool: "ffmpeg", purpose: "video sample", args: args, source: source, stdout: reader})
	if _, err := exitBySource(err); err != nil {
		return frameSample{}, "", err
	}
	return reader.frameSample, out.tail, nil
}

func (t Tools) threads() []string {
	if t.Threads <= 0 {
		return nil
	}
	n := strconv.Itoa(t.Threads)
	return []string{"-threads", n, "-filter_threads", n, "-filter_complex_threads", n}
}

// frameSample is the result of decoding some frames.
type frameSample struct {
	frames                   int
	first, last              float64 // times of the first and last frame
	top, bottom, progressive float64 // counts of idet
	repeats                  []byte  // t, b or n: whether each frame repeats the top or bottom field of the one before, or neither
}

// frameSampleReader parses the output of ffmpeg's metadata filter. The counts of
// idet accumulate, so the last ones are valid.
type frameSampleReader struct {
	io.Writer
	frameSample
}

func newFrameSampleReader() *frameSampleReader {
	r := &frameSampleReader{frameSample: frameSample{first: math.NaN()}}
	r.Writer = childproc.Lines(r.line)
	return r
}

func (r *frameSampleReader) line(line []byte) {
	if bytes.HasPrefix(line, []byte("frame:")) {
		r.frames++
		_, value, _ := bytes.Cut(line, []byte("pts_time:"))
		if pts, ok := jsonNumber(bytes.TrimSpace(value)).seconds(); ok {
			r.last = pts
			if r.frames == 1 {
				r.first = pts
			}
		}
		return
	}
	key, value, _ := bytes.Cut(line, []byte("="))
	if string(key) == "lavfi.idet.repeated.current_frame" && len(value) > 0 {
		r.repeats = append(r.repeats, value[0])
	}
	count, ok := jsonNumber(value).seconds()
	if !ok || count < 0 {
		return
	}
	switch string(key) {
	case "lavfi.idet.multiple.tff":
		r.top = count
	case "lavfi.idet.multiple.bff":
		r.bottom = count
	case "lavfi.idet.multiple.progressive":
		r.progressive = count
	}
}
