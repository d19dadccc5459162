package media

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// soundDecoders are children that each decode one sound of a source into a pipe, with the channels of a rendition and one rate, with
// its timestamps. The encoder reads the pipes. ffmpeg rebuilds a filter graph when the channels or the rate change on the
// way; if the encoder had that graph, each change would leave a short frame in the middle, and the new graph would
// begin at zero again.
type soundDecoders struct {
	pipes   []*os.File // what the encoder reads, one per sound
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
	reports []stderrReport
	errs    []error
}

// soundDecoder says how the sounds of a source are decoded.
type soundDecoder struct {
	tools  Tools
	source string
	info   *Info
	found  capabilities
}

// start begins to decode sounds. The caller calls finish when the encoder has ended.
func (s soundDecoder) start(ctx context.Context, sounds []decodedSound) (*soundDecoders, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	d := &soundDecoders{
		cancel: cancel, reports: make([]stderrReport, len(sounds)), errs: make([]error, len(sounds)),
	}
	var ends []*os.File
	for range sounds {
		read, write, err := os.Pipe()
		if err != nil {
			closeAll(append(ends, d.pipes...))
			cancel(nil)
			return nil, fmt.Errorf("decode sound: %w", err)
		}
		d.pipes, ends = append(d.pipes, read), append(ends, write)
	}
	s.tools.Step, s.tools.Threads = nil, 1 // the encoder's steps show the progress
	if planTiming(s.info).skips() {
		s.tools.Stall = -1 // it waits until the encoder has found the picture
	}
	for i, sound := range sounds {
		d.running.Go(func() {
			defer ends[i].Close()
			d.reports[i], d.errs[i] = s.tools.run(ctx, command{
				tool: "ffmpeg", purpose: "decode sound", args: s.args(sound), source: s.source, stdout: ends[i],
			})
		})
	}
	return d, nil
}

// finish waits for the decoders, after the encoder, whose report and error it gets. It adds the messages of the
// decoders to the report, and prefers their errors of this host, which explain those of the encoder.
func (d *soundDecoders) finish(out stderrReport, err error) (stderrReport, error) {
	closeAll(d.pipes)
	if err != nil {
		d.cancel(errEncoderEnded)
	}
	d.running.Wait()
	d.cancel(nil)
	if errors.Is(err, ErrInput) || errors.Is(err, ErrInputStalled) {
		return out, err // a decoder that made no progress waited for the encoder
	}
	for i, report := range d.reports {
		if errors.Is(d.errs[i], syscall.EPIPE) || d.errs[i] != nil && strings.Contains(report.tail, brokenPipe) {
			continue // the encoder needed no more
		}
		out.errors += report.errors
		out.tail = strings.TrimSpace(report.tail + "\n" + out.tail)
		// A sound that cannot be decoded has an empty rendition, which is left out.
		_, hostErr := exitBySource(d.errs[i])
		if hostErr != nil && !errors.Is(hostErr, errEncoderEnded) {
			return out, fmt.Errorf("decode sound: %w", hostErr)
		}
	}
	return out, err
}

// brokenPipe is the C library's message for EPIPE.
const brokenPipe = "Broken pipe"

// errEncoderEnded is why decoders are ended after the encoder failed.
var errEncoderEnded = errors.New("the encoder has ended")

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // a pipe has nothing to lose
	}
}

// args decode one sound. Before it goes a moment of silence at zero: ffmpeg takes the smallest timestamp of an input for
// its zero, and the sound may begin later. Sound without timestamps has neither.
func (s soundDecoder) args(sound decodedSound) []string {
	filter := channelFilter(sound.channels)
	args := s.tools.ffmpegArgs("-max_error_rate", "1")
	plan, part := planTiming(s.info), ""
	if s.info.Range != nil {
		part = fmt.Sprintf(":end=%.6f", s.info.Duration)
	}
	args = append(args, input(s.source, append(probedInputOptions(s.info, s.found.decoders), plan.inputOptions()...)...)...)
	if isUntimed(s.info) {
		if part != "" {
			filter += fmt.Sprintf(",atrim=start=%.6f:duration=%.6f", s.info.Start, s.info.Duration)
		}
		return append(args, "-filter_complex", soundInput(0, sound.audio)+filter+"[sound]", "-map", "[sound]", "-f", "f32le", "pipe:1")
	}
	graph := fmt.Sprintf("anullsrc=r=%d:cl=stereo:d=0.02[zero];%sasetpts=PTS-%.6f/TB,%s,atrim=start=0%s[sound]", sampleRate,
		soundInput(0, sound.audio), plan.begin(), filter, part)
	args = append(args, "-filter_complex", graph, "-map", "[zero]", "-map", "[sound]", "-c:a", "pcm_f32le",
		"-avoid_negative_ts", "disabled", "-max_interleave_delta", "1", "-flush_packets", "1", "-f", "nut", "pipe:1")
	return append(args, readAllStreams(s.info)...)
}

// isUntimed reports whether a source is sound whose timestamps are only computed from its rate. ffmpeg goes on with the
// first rate when it changes, so the samples are counted instead.
func isUntimed(info *Info) bool {
	untimed := []string{"aac", "mp3", "ac3", "eac3", "dts", "dtshd", "truehd", "loas", "ogg"}
	return info.Video == nil && slices.Contains(untimed, info.Container)
}

// readAllStreams makes ffmpeg read the packets of all streams that are used, in containers whose clocks jump: it finds
// its zero and the jumps in the packets of those that it reads, and all children must find the same.
func readAllStreams(info *Info) []string {
	if !hasTimestampJumps(info.Container) {
		return nil
	}
	var args []string
	if info.Video != nil {
		args = append(args, "-map", "0:"+strconv.Itoa(info.Video.Index))
	}
	for _, a := range info.Audio {
		args = append(args, "-map", "0:"+strconv.Itoa(a.Index))
	}
	return append(args, "-c", "copy", "-f", "null", "-")
}

// channelFilter converts a sound to the channels and the rate that are published. It prevents clipping in the downmix.
func channelFilter(channels int) string {
	return fmt.Sprintf("aresample=%d:rematrix_maxval=1,aformat=sample_fmts=flt:channel_layouts=%s", sampleRate, layouts[channels])
}

// maxSoundError is how many seconds sound may differ from its timestamps before it is cut, or continued with silence.
// More would be seen as a picture that is late. Less would be heard, where timestamps are not exact: ffmpeg computes most
// of those in transport streams, and is wrong by up to 0.03 s after a change of the rate.
const maxSoundError = 0.045

// evenSound makes sound without gaps of decoded sound, from zero on.
func evenSound(channels int) string {
	return fmt.Sprintf("aresample=%d:async=1:min_hard_comp=%v:first_pts=0,aformat=sample_fmts=fltp:channel_layouts=%s", sampleRate,
		maxSoundError, layouts[channels])
}

// firstPipe is the number of the first file that a command passes to its child.
const firstPipe = 3

// decodedInput are the options for reading so many channels from the pipe of decoder n, and the stream to use of it.
func decodedInput(info *Info, n, channels int) (options []string, stream int) {
	options = []string{"-protocol_whitelist", "pipe", "-codec_whitelist", "pcm_f32le"}
	if isUntimed(info) {
		options = append(options, "-f", "f32le", "-ar", strconv.Itoa(sampleRate), "-ac", strconv.Itoa(channels))
	} else {
		options, stream = append(options, "-f", "nut"), 1
	}
	return append(options, "-i", fmt.Sprintf("pipe:%d", firstPipe+n)), stream
}
