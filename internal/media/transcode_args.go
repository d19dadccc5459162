package media

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	defaultPreset = "veryfast"
	defaultCRF    = 24
	sampleRate    = 48000

	playlistName = "index.m3u8"
	initName     = "init.mp4"
	// segmentPattern has room for a week of segments before names get longer.
	segmentPattern = "seg-%05d.m4s"
)

// renditionJob is one rendition to produce.
type renditionJob struct {
	rung  Rung
	dir   string
	audio *Audio // nil for video
}

// renditionJobs lists the renditions: one per video rung, and one per audio rung and
// audio stream that has its channels. All audio streams but the first have a number in their names.
func renditionJobs(info *Info, rungs []Rung) (video, audio []renditionJob) {
	for _, r := range rungs {
		if !r.IsAudio() {
			video = append(video, renditionJob{rung: r, dir: r.Name})
			continue
		}
		for i := range info.Audio {
			if r.channels() == surround && !info.Audio[i].isSurround() {
				continue
			}
			folder := r.Name
			if i > 0 {
				folder = fmt.Sprintf("%s-%d", r.Name, i+1)
			}
			audio = append(audio, renditionJob{rung: r, dir: folder, audio: &info.Audio[i]})
		}
	}
	return video, audio
}

// transcodeArgs is the command line of the one ffmpeg that makes all renditions. It reads the picture from the source,
// and the sound from [soundDecoders].
// Output names are relative to the output directory, because ffmpeg would
// interpret some characters of the directory's own name.
func (t Tools) transcodeArgs(
	source string, info *Info, video, audio []renditionJob, plan timing, c capabilities, e videoEncoder, d *device,
) []string {
	// Whether there are too many errors is decided from the output.
	args := t.ffmpegArgs("-progress", "pipe:1", "-stats_period", "1", "-max_error_rate", "1")
	args = append(args, d.globalArgs()...)
	// If frames change mid-stream, ffmpeg would rebuild the graph and lose the
	// frames in it.
	options := []string{"-noautorotate", "-reinit_filter:v", "0"}
	if info.Video != nil {
		options = append(options, alphaDecoder(info.Video, c)...)
	}
	if !c.fpsMode {
		args = append(args, "-vsync", "vfr")
	}
	options = append(options, plan.inputOptions()...)
	inputs := 0
	if len(video) > 0 {
		args = append(args, input(source, append(probedInputOptions(info, c.decoders), options...)...)...)
		inputs++
	}
	sounds, stream := soundsOf(audio), 0
	for n, sound := range sounds {
		var options []string
		options, stream = decodedInput(info, n, sound.channels)
		args = append(args, options...)
	}
	if len(video) > 0 {
		rungs := make([]Rung, len(video))
		for i, j := range video {
			rungs[i] = j.rung
		}
		args = append(args, "-filter_complex", videoGraph(info, rungs, plan, c, e))
		args = append(args, frameListArgs("[decoded]", "passthrough", plan.cut.decodedTimeBase(), decodedFrames, plan, c)...)
		args = append(args, frameListArgs("[shown]", "vfr", outputTimeBase, encodedFrames, plan, c)...)
		if plan.cut.hasFramesBefore() {
			args = append(args, frameListArgs("[first]", "passthrough", plan.cut.decodedTimeBase(), firstFrames, plan, c)...)
		}
	}
	for i, j := range video {
		if j.rung.Copied {
			continue
		}
		args = append(args, t.videoArgs(i, j, info.Video, plan, c, e)...)
	}
	for _, j := range audio {
		args = append(args, audioArgs(j, fmt.Sprintf("%d:%d", inputs+slices.Index(sounds, j.sound()), stream), info, plan)...)
	}
	if len(video) > 0 {
		args = append(args, readAllStreams(info)...)
	}
	if len(video) > 0 && plan.skips() {
		args = append(args, "-map", fmt.Sprintf("0:%d", info.Video.Index), "-t", formatSeconds(plan.begin()),
			"-c:v", "wrapped_avframe", "-f", "null", "-") // shows progress
	}
	return args
}

// alphaDecoder selects the decoder that supports WebM's transparency, if it is
// installed. ffmpeg's own decoders for these codecs ignore it.
func alphaDecoder(v *Video, c capabilities) []string {
	decoder := map[string]string{"vp8": "libvpx", "vp9": "libvpx-vp9"}[v.Codec]
	if !v.Alpha || !slices.Contains(c.decoders[v.Codec], decoder) {
		return nil
	}
	return []string{fmt.Sprintf("-c:%d", v.Index), decoder}
}

// outputTimeBase is that of the encoders.
var outputTimeBase = fmt.Sprintf("1:%d", videoTimescale)

func frameListArgs(label, mode, timeBase, file string, plan timing, c capabilities) []string {
	encoder := "wrapped_avframe"
	if file == firstFrames {
		encoder = "rawvideo" // for the checksums
	}
	limit := plan.maxSeconds
	if plan.part != nil && file == decodedFrames {
		limit += plan.begin() // before the filters that count from the start of the output
	}
	args := append([]string{"-map", label}, fpsModeArgs(mode, c)...)
	return append(args, "-enc_time_base", timeBase, "-t", formatSeconds(limit),
		"-c:v", encoder, "-f", "framecrc", "file:"+file)
}

func fpsModeArgs(mode string, c capabilities) []string {
	if !c.fpsMode {
		return nil
	}
	return []string{"-fps_mode", mode}
}

func (t Tools) videoArgs(i int, j renditionJob, v *Video, plan timing, c capabilities, e videoEncoder) []string {
	args := append([]string{"-map", fmt.Sprintf("[v%d]", i)}, t.encoderArgs(j, v, plan, c, e)...)
	return append(args, plan.hlsArgs(j.dir)...)
}

// encoderArgs are the options of a video rendition's encoder: e, or the one that goes with it for another codec.
func (t Tools) encoderArgs(j renditionJob, v *Video, plan timing, c capabilities, e videoEncoder) []string {
	r := j.rung
	e = e.encoderOf(r, c)
	s := t.encoderSettings(r, h264LevelFor(r.Width, r.Height, maxDecodeRate(v, plan), r.VideoBitrate))
	s.hdr = r.HDR
	s.keyframes, s.rate = plan.keyframes(), min(max(v.outputRate(), 1), maxFrameRate)
	if e.name == svtAV1 && !c.forcesAV1 {
		s.keyframes, s.interval = "", plan.framesPerSegment(v)
	}
	if plan.starts != nil {
		s.interval = copyInterval
	}
	if plan.isSlideShow {
		s.crf = min(s.crf+slideShowCRF, 51)
	}
	args := append(fpsModeArgs("vfr", c), "-enc_time_base", outputTimeBase, "-t", formatSeconds(plan.maxSeconds))
	args = append(append(args, e.args(s)...), plan.cut.encoderArgs(r)...)
	if plan.repeatedFrames > 0 {
		if !e.isHardware() && e.codec != av1Codec {
			// With frames that last seconds, B-frames would delay the picture by seconds.
			args = append(args, "-bf", "0")
		}
		if c.fpsMode {
			args = append(args, "-bsf:v", frameDurations)
		}
	}
	if !e.isHardware() {
		if slices.Contains(slowPresets, s.preset) && e.codec == h264Codec {
			args = append(args, "-refs", strconv.Itoa(maxReferences))
		}
		args = append(args, t.threads()[:min(2, len(t.threads()))]...)
	}
	return append(args, "-map_metadata", "-1", "-map_chapters", "-1")
}

// maxInterval is more frames than a segment has.
const maxInterval = 600

func (t Tools) encoderSettings(r Rung, level string) encoderSettings {
	s := encoderSettings{
		preset: cmp.Or(r.Preset, t.Preset, defaultPreset), crf: cmp.Or(r.Quality, t.CRF), bitrate: r.VideoBitrate, level: level,
		lookahead: 40, interval: maxInterval, threads: t.Threads,
	}
	if r.Width*r.Height > 1920*1088 {
		s.lookahead = 20 // 40 frames of 2160p would take 0.7 GiB more
	}
	if s.crf <= 0 {
		s.crf = defaultCRF
	}
	return s
}

// frameDurations tells the muxer each frame's duration. The muxer starts a segment
// where it guesses that the last frame ends; with repeated frames, the guess is
// wrong, and the error grows with each segment.
const frameDurations = `setts=duration=if(gt(NEXT_DTS\,DTS)\,NEXT_DTS-DTS\,DURATION)`

// slideShowCRF is added to the CRF of slide shows: x264 spends more on a frame the
// longer it lasts, up to a second; that is some 9 steps more than in a film.
const slideShowCRF = 4

// keyframes is an expression that forces a keyframe on the first frame of every segment: at the same frames in all rungs, without
// drift, and only once after a pause. ffmpeg counts from the first frame.
func (t timing) keyframes() string {
	if t.starts != nil {
		return strings.Join(keyframeTimes(t.starts, 0), ",")
	}
	return fmt.Sprintf("expr:if(isnan(prev_forced_t),1,gt(floor((t+0.0005)/%[1]g),floor((prev_forced_t+0.0005)/%[1]g)))",
		float64(t.segment)/videoTimescale)
}

// keyframeTimes force a keyframe on the first frame from each of some times on, in ticks after zero.
func keyframeTimes(starts []int64, zero int64) []string {
	times := make([]string, len(starts))
	for i, at := range starts {
		times[i] = formatSeconds(float64(zero+at-keyframeSlack) / videoTimescale)
	}
	return times
}

// maxDecodeRate is the frame rate a decoder must support. For irregular frames it is
// the highest permitted one.
func maxDecodeRate(v *Video, plan timing) float64 {
	switch {
	case plan.repeatedFrames > 0 && v.MinGap > 0:
		return min(float64(v.framesPerDecoded())/v.MinGap+1, maxFrameRate)
	case v.FPS > maxFrameRate || v.MaxGap*v.FPS > 2.5:
		return maxFrameRate
	}
	return v.outputRate()
}

// slowPresets refer to more frames than the level allows.
var slowPresets = []string{"slow", "slower", "veryslow", "placebo"}

func audioArgs(j renditionJob, input string, info *Info, plan timing) []string {
	filter := evenSound(j.rung.channels()) + gainFilter(j)
	if v := info.Video; v != nil {
		// Pad the audio: players stop at the end of the shorter stream.
		filter += fmt.Sprintf(",apad=whole_dur=%s", formatSeconds(v.Start-info.Start+v.Duration))
	}
	args := []string{
		"-map", input, "-af", filter, "-t", formatSeconds(plan.maxSeconds),
		"-c:a", "aac", "-profile:a", "aac_low", "-b:a", strconv.Itoa(j.rung.AudioBitrate),
		"-map_metadata", "-1", "-map_chapters", "-1",
	}
	return append(args, hlsArgs(j.dir, segmentSeconds)...)
}

// hlsArgs begin a segment at the first keyframe after each multiple of so many seconds.
func hlsArgs(folder string, seconds float64) []string {
	return []string{
		"-f", "hls", "-hls_time", strconv.FormatFloat(seconds, 'f', -1, 64), "-hls_list_size", "0", "-hls_playlist_type",
		"vod",
		"-hls_segment_type", "fmp4", "-hls_flags", "independent_segments+temp_file",
		"-hls_fmp4_init_filename", initName, "-hls_segment_filename", "file:" + path.Join(folder, segmentPattern),
		"file:" + path.Join(folder, playlistName),
	}
}

func formatSeconds(v float64) string { return strconv.FormatFloat(max(0, v), 'f', 6, 64) }
