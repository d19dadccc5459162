package media

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// damagedSlack is the share by which two decoders may differ after errors in the
// source.
const damagedSlack = 0.05

// measureSource decodes the source as Transcode does, without encoding it, and
// compares the number of frames and the length of the sound.
func (u *deliveryCheck) measureSource(ctx context.Context) error {
	work, err := os.MkdirTemp(u.dir, ".count-")
	if err != nil {
		return spaceError(err)
	}
	defer os.RemoveAll(work)
	reader := newProgressReader(u.info.Duration, nil, time.Now)
	cmd := command{
		tool: "ffmpeg", purpose: "count frames", args: u.countArgs(), dir: work, source: u.source, stdout: reader,
	}
	out, err := u.tools.run(ctx, cmd)
	if _, err := exitBySource(err); err != nil {
		return err
	}
	delivered := u.out.Expected
	if len(u.video) > 0 {
		if err := u.out.readFrameLists(work, u.info, u.plan, out); err != nil {
			return out.preferDiskError(err)
		}
	}
	u.out.DecodeErrors = out.errors
	u.out.warnOfDamage(out.errors)
	if want := u.out.Expected; len(u.video) > 0 {
		slack := int64(1)
		if out.errors > 0 {
			u.out.FrameTimes = nil // another decoder may show others
			slack = int64(3 + damagedSlack*float64(want))
		}
		if delivered < want-slack || delivered > want+slack {
			return refuse("", "it has %d frames, but the source gives %d", delivered, want)
		}
		u.out.Expected = delivered
	}
	return u.compareSoundLengths(work)
}

func (u *deliveryCheck) countArgs() []string {
	args := u.tools.ffmpegArgs("-max_error_rate", "1", "-progress", "pipe:1")
	if !u.found.fpsMode {
		args = append(args, "-vsync", "vfr")
	}
	args = append(args, input(u.source, append(sourceOptions(u.info, u.found), u.plan.inputOptions()...)...)...)
	if len(u.video) > 0 {
		args = append(args, "-filter_complex", countGraph(u.info.Video, u.plan, u.found))
		args = append(args, frameListArgs("[decoded]", "passthrough", outputTimeBase, decodedFrames, u.plan, u.found)...)
		args = append(args, frameListArgs("[shown]", "vfr", outputTimeBase, encodedFrames, u.plan, u.found)...)
	}
	for i, r := range u.audio {
		args = append(args, "-map", fmt.Sprintf("0:%d", r.audio.Index), "-f", "framecrc", "file:"+soundList(i))
	}
	return args
}

// soundList is the name of the list of decoded sound of an audio rendition.
func soundList(i int) string { return fmt.Sprintf("sound-%d.tap", i) }

// compareSoundLengths refuses sound that ends before what this host decoded. Check
// allows for more, because damaged sound ends early.
func (u *deliveryCheck) compareSoundLengths(work string) error {
	for i, r := range u.audio {
		list, err := readFrameList(filepath.Join(work, soundList(i)), 0)
		if err != nil {
			return err
		}
		want := min(list.end-u.plan.begin(), u.info.Duration)
		got := r.files.duration() - r.files.seconds(encoderDelay)
		if got < want-max(missingSeconds, damagedSlack*want) {
			return refuse(r.dir, "it lasts %.1f s, but the source's sound %.1f s", got, want)
		}
	}
	return nil
}
