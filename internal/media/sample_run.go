package media

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// smallSide is the longest side of the small pictures, in pixels.
	smallSide = 96
	// soundRate is samples per second of the compared sound.
	soundRate = 8000
)

// sampleRun is one ffmpeg that decodes a moment of the source, of its renditions, or
// of both, into raw files in work.
type sampleRun struct {
	u       *untrustedCheck
	m       moment
	work    string
	args    []string // inputs
	graphs  []string // one per decoded stream, so that none waits for another
	outputs []string
	inputs  int
	// isLong means that hours may be decoded before the moment. Then frames are
	// counted as progress.
	isLong bool
	// own is where an encode of this host begins, in seconds of the output: the files
	// own-0.mp4 … in work are compared instead of the renditions. Negative: none.
	own float64
}

func (u *untrustedCheck) newSampleRun(m moment, work string) *sampleRun {
	return &sampleRun{u: u, m: m, work: work, own: -1}
}

func (r *sampleRun) addInput(options []string, file string) int {
	r.args = append(append(r.args, options...), "-i", "file:"+file)
	r.inputs++
	return r.inputs - 1
}

func (r *sampleRun) addOutput(label, file string) {
	r.outputs = append(r.outputs, "-map", label)
	r.outputs = append(r.outputs, fpsModeArgs("passthrough", r.u.found)...)
	r.outputs = append(r.outputs, "-f", "rawvideo", "file:"+file)
}

func (r *sampleRun) addSound(label, file string) {
	r.outputs = append(r.outputs, "-map", label, "-f", "s16le", "file:"+file)
}

// twoPictures selects the pictures that are shown at 0 and gap seconds later.
func twoPictures(gap float64) string {
	return fmt.Sprintf("fps=fps=%.9f:start_time=0:round=up:eof_action=pass,tpad=stop_mode=clone:stop=2,trim=end_frame=2",
		1/gap)
}

// smallPictures scales to the size at which pictures are compared.
func (u *untrustedCheck) smallPictures() string {
	w, h := u.smallSize()
	return fmt.Sprintf("scale=w=%d:h=%d:flags=area,format=yuv444p", w, h)
}

func (u *untrustedCheck) smallSize() (w, h int) {
	top := u.video[0].rung
	scale := smallSide / float64(max(top.Width, top.Height))
	return max(2, int(float64(top.Width)*scale)), max(2, int(float64(top.Height)*scale))
}

// addSource decodes the source. Seeking is cheap, but some containers end up
// elsewhere; without it, everything from the start or from the chunk's is decoded.
func (r *sampleRun) addSource(seek bool) {
	u := r.u
	at, gap := r.m.at, r.m.gap
	if first := u.plan.lead + afterFrame; len(u.video) > 0 && at < first {
		at, gap = first, max(at+gap-first, afterFrame) // the first frame is shown from the start
	}
	at += u.plan.offset
	from := u.knownKeyframe()
	if seek && !r.m.isSeam {
		from = at - u.seekMargin()
	}
	options, shift := u.sourceInput(from, at)
	n := r.addInput(options, u.source)
	if len(u.video) > 0 {
		r.addSourcePicture(n, r.sourceChain(shift, gap, seek))
	}
	if r.isLong = !seek && len(u.video) > 0; r.isLong {
		r.outputs = append(r.outputs, "-map", fmt.Sprintf("%d:%d", n, u.info.Video.Index), "-t", formatSeconds(shift+gap),
			"-c:v", "wrapped_avframe", "-f", "null", "-")
	}
	for i, a := range u.audio {
		if a.audio.Start-u.info.Start+a.audio.Duration < r.m.at+soundSeconds+2*soundLead {
			continue // ffmpeg would read the rest of the source for it
		}
		r.graphs = append(r.graphs, fmt.Sprintf("%sasetpts=PTS-%.6f/TB,%s,atrim=end=%.3f[wantsound%d]", soundInput(n, a.audio),
			shift, r.soundFilters(a.audio), soundSeconds+2*soundLead, i))
		r.addSound(fmt.Sprintf("[wantsound%d]", i), fmt.Sprintf("want-%d.pcm", i))
	}
}

// sourceInput are the options for decoding the source from a time on, where it may be sought, and how much later
// another time is then. Both are in seconds after ffmpeg's zero.
func (u *untrustedCheck) sourceInput(from, at float64) (options []string, shift float64) {
	options = append([]string{
		"-protocol_whitelist", "file", "-format_whitelist", demuxers, "-max_pixels", strconv.Itoa(maxPixels),
	}, u.sourceOptions()...)
	if from <= 0 {
		return options, at
	}
	// Frames before the time are kept: one of them may still be shown.
	return append(options, "-noaccurate_seek", "-ss", formatSeconds(from)), at - from
}

// knownKeyframe is where it is certain that ffmpeg decodes from: the start, or before the keyframe where the encoder
// of a chunk begins. Without the latter, each wrong chunk would cost a decode of all before it.
func (u *untrustedCheck) knownKeyframe() float64 {
	if u.cut == nil {
		return 0
	}
	return u.cut.chunk().Earlier
}

// seekMargin is how much earlier to begin in containers without an index, where
// ffmpeg finds a time but not the keyframe before it.
func (u *untrustedCheck) seekMargin() float64 {
	v := u.info.Video
	if v == nil || !hasTimestampJumps(u.info.Container) {
		return 0
	}
	return 2 * v.Duration / float64(max(v.Keyframes, 1))
}

// sourceChain makes the two pictures of the source at the size of the largest rung. If
// frames are repeated, and everything before the moment is decoded, it repeats them
// like Transcode: the picture may have ended before.
func (r *sampleRun) sourceChain(shift, gap float64, seek bool) []string {
	u, v := r.u, r.u.info.Video
	chain := []string{uniformFrames(v)}
	if v.Interlaced {
		chain = append(chain, deinterlacer(v, u.found, v.framesPerDecoded() == 2))
	}
	scaling := append(orientationFilters(v), colourFilters(v, u.video[0].rung, u.found)...)
	if !seek && u.plan.repeatedFrames > 0 {
		chain = slices.Concat(chain, u.plan.filters(), scaling, u.plan.repeatFilters())
		return append(chain, fmt.Sprintf("setpts=PTS-%.6f/TB", r.m.at), twoPictures(r.m.gap))
	}
	return append(append(chain, fmt.Sprintf("setpts=PTS-%.6f/TB", shift), twoPictures(gap)), scaling...)
}

// addSourcePicture scales the source's pictures to every rung like Transcode, and once
// more to the next lower size and back, which shows the detail that only this size can
// have.
func (r *sampleRun) addSourcePicture(n int, chain []string) {
	u, v := r.u, r.u.info.Video
	var b strings.Builder
	fmt.Fprintf(&b, "[%d:%d]%s,split=%d[wantin]", n, v.Index, strings.Join(chain, ","), len(u.video)+1)
	for i := range u.video {
		fmt.Fprintf(&b, "[in%d]", i)
	}
	fmt.Fprintf(&b, ";[wantin]%s[want]", u.smallPictures())
	r.addOutput("[want]", "want.yuv")
	for i, d := range u.video {
		w, h := u.lowerSize(i)
		fmt.Fprintf(&b, ";[in%d]trim=end_frame=1,scale=w=%d:h=%d:flags=bicubic,split[full%d][down%d]", i, d.rung.Width,
			d.rung.Height, i, i)
		fmt.Fprintf(&b, ";[full%d]%s[want%d]", i, lumaPlane, i)
		fmt.Fprintf(&b, ";[down%d]scale=w=%d:h=%d:flags=bicubic,scale=w=%d:h=%d:flags=bicubic,%s[soft%d]", i, w, h,
			d.rung.Width, d.rung.Height, lumaPlane, i)
		r.addOutput(fmt.Sprintf("[want%d]", i), fmt.Sprintf("want-%d.y", i))
		r.addOutput(fmt.Sprintf("[soft%d]", i), fmt.Sprintf("soft-%d.y", i))
	}
	r.graphs = append(r.graphs, b.String())
}

const lumaPlane = "format=yuv420p,extractplanes=y,format=gray"

// lowerSize is the size of the next lower rung, or what it would be.
func (u *untrustedCheck) lowerSize(i int) (w, h int) {
	if i+1 < len(u.video) {
		return u.video[i+1].rung.Width, u.video[i+1].rung.Height
	}
	r := u.video[i].rung
	return even(float64(r.Width) * 2 / 3), even(float64(r.Height) * 2 / 3)
}

// soundFilters convert sound to one channel, as Transcode converts it to two. Sound that begins within the moment is
// preceded by silence; other sound is not, because ffmpeg would insert it again where the channels change.
func (r *sampleRun) soundFilters(a *Audio) string {
	filter := "atrim=start=0," + stereoFilter
	if a.Start-r.u.info.Start > r.m.at-1 {
		filter += fmt.Sprintf(",aresample=%d:async=1:first_pts=0", sampleRate)
	}
	return filter + "," + oneChannel
}

var oneChannel = fmt.Sprintf("pan=mono|c0=0.5*c0+0.5*c1,aresample=%d,aformat=sample_fmts=s16", soundRate)

// addRenditions decodes the renditions, from copies of the segments in work.
func (r *sampleRun) addRenditions() error {
	u := r.u
	for i, d := range u.video {
		file, options := ownName(i), ownOptions(r.m.at-r.own)
		if r.own < 0 {
			file, options = fmt.Sprintf("%d.mp4", i), r.renditionOptions(d, r.m.segment, r.m.at, "h264")
			if err := d.copySegments(u.dir, filepath.Join(r.work, file), r.m.segment, 1); err != nil {
				return err
			}
		}
		n := r.addInput(options, file)
		r.graphs = append(r.graphs, fmt.Sprintf("[%d:v]%s,split[gotfull%d][gotin%d];"+
			"[gotfull%d]trim=end_frame=1,%s[gotfirst%d];[gotin%d]%s[got%d]", n, twoPictures(r.m.gap), i, i, i,
			lumaPlane, i, i, u.smallPictures(), i))
		r.addOutput(fmt.Sprintf("[gotfirst%d]", i), fmt.Sprintf("got-%d.y", i))
		r.addOutput(fmt.Sprintf("[got%d]", i), fmt.Sprintf("got-%d.yuv", i))
	}
	for i, d := range u.audio {
		if r.own >= 0 {
			break // sound does not depend on the encoder
		}
		at, k := r.m.at+soundLead, 0
		for k+1 < len(d.files.segments) && d.files.shownAt(d.files.segments[k+1].firstPTS) <= at {
			k++
		}
		file := fmt.Sprintf("sound-%d.mp4", i)
		if err := d.copySegments(u.dir, filepath.Join(r.work, file), k, 2); err != nil {
			return err
		}
		n := r.addInput(r.renditionOptions(d, k, at, "aac"), file)
		r.graphs = append(r.graphs, fmt.Sprintf("[%d:a]%s,atrim=end=%.3f[gotsound%d]", n, oneChannel, soundSeconds, i))
		r.addSound(fmt.Sprintf("[gotsound%d]", i), fmt.Sprintf("got-%d.pcm", i))
	}
	return nil
}

// renditionOptions are those of a copy that begins with segment k.
func (r *sampleRun) renditionOptions(d deliveredRendition, k int, at float64, codec string) []string {
	options := []string{
		"-protocol_whitelist", "file", "-f", "mov", "-codec_whitelist", codec, "-max_pixels", strconv.Itoa(maxEncodedPixels),
	}
	if d.audio == nil {
		options = append(options, "-noaccurate_seek")
	}
	if from := at - d.files.shownAt(d.files.segments[k].firstPTS); from > 0 {
		options = append(options, "-ss", formatSeconds(from))
	}
	return options
}

// copySegments writes the initialization segment and n segments from k on into one
// file, which ffmpeg may read without access to the delivered ones.
func (d deliveredRendition) copySegments(dir, to string, k, n int) (err error) {
	reader := &renditionReader{dir: filepath.Join(dir, d.dir), names: []string{initName}}
	for _, g := range d.files.segments[k:min(k+n, len(d.files.segments))] {
		reader.names = append(reader.names, g.name)
	}
	defer reader.Close()
	f, err := os.Create(to)
	if err != nil {
		return spaceError(err)
	}
	if _, err := io.Copy(f, reader); err != nil {
		f.Close()
		return spaceError(err)
	}
	return spaceError(f.Close())
}

// run decodes. It returns only host errors; files that are missing or short show the
// others.
func (r *sampleRun) run(ctx context.Context) error {
	tools := r.u.tools
	tools.Threads = 1 // the pictures are few; threads would cost more than they save
	args := tools.ffmpegArgs("-progress", "pipe:1")
	if !r.u.found.fpsMode {
		args = append(args, "-vsync", "passthrough")
	}
	args = append(args, r.args...)
	for _, g := range r.graphs {
		args = append(args, "-filter_complex", g)
	}
	args = append(args, r.outputs...)
	cmd := command{
		tool: "ffmpeg", purpose: "compare", args: args, dir: r.work, source: r.u.source,
		stdout: newProgressReader(r.u.info.Duration, nil, time.Now), noProgress: !r.isLong,
	}
	_, err := tools.run(ctx, cmd)
	_, err = exitBySource(err)
	return err
}
