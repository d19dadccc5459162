package media

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/media/sandbox"
)

// EncoderTrial is what came of trying an encoder.
type EncoderTrial struct {
	Name       string
	IsHardware bool
	// IsWanted means that it makes H.264 here: Tools.Encoders has it, or it is libx264. The
	// others are tried for the list of workers.
	IsWanted bool
	// Failure is why it does not work, in a sentence without a full stop; empty if it works.
	Failure string
	// Hint is what to do about it; it may be empty.
	Hint string
}

// IsEncoder reports whether a name is that of an encoder which TryEncoders may find.
func IsEncoder(name string) bool {
	return slices.ContainsFunc(slices.Concat([]videoEncoder{libx264}, hardwareEncoders, hevcAV1Encoders),
		func(e videoEncoder) bool { return e.name == name })
}

// tryTimeout is how long an encoder may take for at most a second of a small picture.
const tryTimeout = 10 * time.Second

// TryEncoders encodes with libx264, with each hardware encoder of Tools.Encoders whose device is there, and
// with the other encoders that ffmpeg has for the processor and for these devices. It does so in the sandbox
// and with the options of a transcode, because ffmpeg's list of encoders does not say whether a device, its
// driver or a library works. The trials run at once, and take at most ten seconds each; software takes about
// 0.1 s. If t has a Cache, a hardware encoder that fails is not used for the next ten minutes.
func (t Tools) TryEncoders(ctx context.Context) ([]EncoderTrial, error) {
	t.Nice = 0 // a moment of work, which transcodes of others must not keep from ending in time
	wanted, err := t.wantedHardware()
	if err != nil {
		return nil, fmt.Errorf("try encoders: %w", err)
	}
	_, installed, err := t.codecs(ctx)
	if err != nil {
		return nil, fmt.Errorf("try encoders: %w", err)
	}
	software := []videoEncoder{libx264}
	var hardware []videoEncoder
	devices := map[deviceKind]*device{}
	for _, e := range wanted {
		if d := t.findDevice(e.device); d != nil {
			devices[e.device], hardware = d, append(hardware, e)
		}
	}
	for _, e := range hevcAV1Encoders {
		switch {
		case devices[e.device] != nil:
			hardware = append(hardware, e)
		case !e.isHardware() && slices.Contains(installed, e.name):
			software = append(software, e)
		}
	}
	trials := make([]EncoderTrial, len(hardware))
	var all sync.WaitGroup
	for i, e := range hardware {
		all.Go(func() { trials[i] = t.tryHardware(ctx, e, devices[e.device]) })
	}
	inSoftware := t.trySoftware(ctx, software)
	all.Wait()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("try encoders: %w", context.Cause(ctx))
	}
	return append(inSoftware, trials...), nil
}

// trySoftware tries encoders in one process, which takes longer to start than to encode, and each in a
// process of its own if that fails.
func (t Tools) trySoftware(ctx context.Context, list []videoEncoder) []EncoderTrial {
	trials := make([]EncoderTrial, len(list))
	together := t.encodeTrial(ctx, nil, list...)
	for i, e := range list {
		trials[i] = EncoderTrial{Name: e.name, IsWanted: e.codec == h264Codec}
		if together == nil {
			continue
		}
		if err := t.encodeTrial(ctx, nil, e); err != nil {
			trials[i].Failure = encoderFailure(err, e)
		}
	}
	return trials
}

func (t Tools) tryHardware(ctx context.Context, e videoEncoder, d *device) EncoderTrial {
	trial := EncoderTrial{Name: e.name, IsHardware: true, IsWanted: e.codec == h264Codec}
	err := t.encodeTrial(ctx, d, e)
	if err == nil {
		t.Cache.resumeEncoder(e.name)
		return trial
	}
	t.Cache.pauseEncoder(e.name)
	trial.Failure = encoderFailure(err, e)
	if node := t.closedNode(d); node != "" {
		trial.Failure = "no permission for " + node
		trial.Hint = "add the user of cuelight to the group of " + node + ", usually render or video " +
			"(usermod -aG GROUP USER), and start cuelight again"
	}
	return trial
}

// encodeTrial encodes a short video with each of the encoders. With a device there is one.
func (t Tools) encodeTrial(ctx context.Context, d *device, list ...videoEncoder) error {
	ctx, cancel := context.WithTimeoutCause(ctx, tryTimeout, fmt.Errorf("it did not end within %v", tryTimeout))
	defer cancel()
	args := append([]string{"-nostdin"}, quiet...)
	args = append(append(args, d.globalArgs()...), "-f", "lavfi", "-i", "testsrc2=s=320x240:r=25:d="+list[0].trialSeconds())
	for _, e := range list {
		args = append(args, "-map", "0:v")
		if e.upload != "" {
			args = append(args, "-vf", e.upload)
		}
		rung := Rung{Width: 320, Height: 240, VideoBitrate: 500_000}
		s := t.encoderSettings(rung, h264LevelFor(rung.Width, rung.Height, 25, rung.VideoBitrate))
		s.rate, s.keyframes = 25, timing{segment: segmentTicks}.keyframes()
		args = append(append(args, e.args(s)...), "-f", "null", "-")
	}
	_, err := t.run(ctx, command{
		tool: "ffmpeg", purpose: "try " + list[0].name, args: args, device: d, noProgress: true,
	})
	return err
}

// trialSeconds is the length of the video of a trial. A device may fail after its first frames; software
// that encodes a few works.
func (e videoEncoder) trialSeconds() string {
	if e.isHardware() {
		return "1"
	}
	return "0.2"
}

// encoderFailure is the reason for an encoder's failure: what it reported first, or else the last message.
func encoderFailure(err error, e videoEncoder) string {
	exit, ok := errors.AsType[*exitError](err)
	if !ok || exit.signal != 0 || exit.tail == "" {
		text, _, _ := strings.Cut(err.Error(), "\n")
		return text
	}
	lines := strings.Split(exit.tail, "\n")
	for _, line := range lines {
		for _, speaker := range []string{"[" + e.name + "] ", "[AVHWDeviceContext] ", "[AVHWFramesContext] "} {
			if text, ok := strings.CutPrefix(line, speaker); ok {
				return strings.TrimSuffix(text, ".")
			}
		}
	}
	return lines[len(lines)-1]
}

// closedNode returns the first node of a device that a child may not open, or "".
func (t Tools) closedNode(d *device) string {
	if d == nil {
		return ""
	}
	for _, node := range d.nodes {
		f, err := os.OpenFile(node, os.O_RDWR, 0)
		if err == nil {
			f.Close()
		}
		// Root may open every node, but the user of its children must be in a group.
		asRoot := t.Sandbox != SandboxOff && sandbox.CanChangeUser(t.sandboxUser())
		if errors.Is(err, fs.ErrPermission) || asRoot && isClosedToOthers(node) {
			return node
		}
	}
	return ""
}
