package media

import (
	"cmp"
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

// momentDecoder is one ffmpeg that decodes a moment of the source, of its renditions, or of both, into raw pictures in work.
type momentDecoder struct {
	pictureCheck
	m       moment
	work    string
	args    []string // inputs
	graphs  []string // one per decoded stream, so that none waits for another
	outputs []string
	inputs  int
	// isLong means that hours may be decoded before the moment. Then frames are counted as progress.
	isLong bool
}

const wantedPicture = "want.yuv"

func writtenPicture(i int) string { return fmt.Sprintf("got-%d.yuv", i) }

func (r *momentDecoder) addInput(args []string) int {
	r.args = append(r.args, args...)
	r.inputs++
	return r.inputs - 1
}

// addPicture filters a stream of an input into a file.
func (r *momentDecoder) addPicture(input int, stream string, filters []string, file string) {
	w, h := r.smallSize()
	filters = append(filters, fmt.Sprintf("scale=w=%d:h=%d:flags=area,format=yuv444p", w, h))
	label := fmt.Sprintf("[pictures%d]", input)
	r.graphs = append(r.graphs, fmt.Sprintf("[%d:%s]%s%s", input, stream, strings.Join(filters, ","), label))
	r.outputs = append(r.outputs, "-map", label)
	r.outputs = append(r.outputs, fpsModeArgs("passthrough", r.found)...)
	r.outputs = append(r.outputs, "-f", "rawvideo", "file:"+file)
}

// pictureAtZero selects the picture that is shown at zero.
const pictureAtZero = "fps=fps=50:start_time=0:round=up:eof_action=pass,tpad=stop_mode=clone:stop=1,trim=end_frame=1"

// smallSize is the size at which pictures are compared. Every pixel is the mean of 8 by 8 or more, so that noise does not count.
func (p pictureCheck) smallSize() (w, h int) {
	top := p.renditions[0].rung
	longest := float64(max(top.Width, top.Height))
	scale := min(smallSide, longest/8) / longest
	return max(2, int(float64(top.Width)*scale)), max(2, int(float64(top.Height)*scale))
}

// addSource decodes the source. Seeking is cheap, but some containers end up
// elsewhere; without it, everything from the start or from the chunk's is decoded.
func (r *momentDecoder) addSource(seek bool) {
	at := max(r.m.at, r.plan.lead+afterFrame) + r.plan.offset // the first frame is shown from the start
	from := r.knownKeyframe()
	if seek && !r.m.isSeam {
		from = at - r.seekMargin()
	}
	options, shift := sourceOptions(r.info, r.found), at
	if from > 0 {
		// Frames before the time are kept: one of them may still be shown.
		options, shift = append(options, "-noaccurate_seek", "-ss", formatSeconds(from)), at-from
	}
	n, stream := r.addInput(input(r.source, options...)), strconv.Itoa(r.info.Video.Index)
	r.addPicture(n, stream, r.sourceFilters(shift, seek), wantedPicture)
	if r.isLong = !seek; r.isLong {
		r.outputs = append(r.outputs, "-map", fmt.Sprintf("%d:%s", n, stream), "-t", formatSeconds(shift+pictureLength),
			"-c:v", "wrapped_avframe", "-f", "null", "-")
	}
}

// sourceOptions are the options for decoding the source's picture.
func sourceOptions(info *Info, found capabilities) []string {
	options := append([]string{"-noautorotate", "-reinit_filter:v", "0"}, probedInputOptions(info, found.decoders)...)
	if info.Video == nil {
		return options
	}
	return append(options, alphaDecoder(info.Video, found)...)
}

// knownKeyframe is where it is certain that ffmpeg decodes from: the start, that of a part, or before the keyframe where the encoder
// of a chunk begins. Without the latter, each wrong chunk would cost a decode of all before it.
func (p pictureCheck) knownKeyframe() float64 {
	if p.cut == nil {
		return p.plan.seek()
	}
	return p.cut.chunk().Earlier
}

// seekMargin is how much earlier to begin in containers without an index, where
// ffmpeg finds a time but not the keyframe before it.
func (p pictureCheck) seekMargin() float64 {
	v := p.info.Video
	if !hasTimestampJumps(p.info.Container) {
		return 0
	}
	return 2 * v.Duration / float64(max(v.Keyframes, 1))
}

// sourceFilters make the picture of the source. If frames are repeated or found in fields, and everything before the moment is decoded,
// they do so like Transcode: the picture may have ended before.
func (r *momentDecoder) sourceFilters(shift float64, seek bool) []string {
	v := r.info.Video
	chain := []string{uniformFrames(v)}
	scaling := append(orientationFilters(v), colourFilters(v, r.renditions[0].rung, r.found)...)
	if !seek && (r.plan.repeatedFrames > 0 || v.Telecined) {
		chain = slices.Concat(r.plan.partFilters(), chain, r.plan.frameFilters(v, r.found), scaling, r.plan.repeatFilters())
		return append(chain, fmt.Sprintf("setpts=PTS-%.6f/TB", r.m.at), pictureAtZero)
	}
	if v.Interlaced {
		chain = append(chain, deinterlacer(v, r.found, v.framesPerDecoded() == 2))
	}
	return append(append(chain, fmt.Sprintf("setpts=PTS-%.6f/TB", shift), pictureAtZero), scaling...)
}

// addRenditions decodes the renditions, from copies of the segments in work.
func (r *momentDecoder) addRenditions() error {
	for i, d := range r.renditions {
		file := fmt.Sprintf("%d.mp4", i)
		if err := d.copySegment(r.dir, filepath.Join(r.work, file), r.m.segment); err != nil {
			return err
		}
		options := []string{
			"-protocol_whitelist", "file", "-f", "mov",
			"-codec_whitelist", strings.Join(r.found.decoders[cmp.Or(d.rung.Codec, "h264")], ","), "-max_pixels", strconv.Itoa(maxEncodedPixels),
			"-noaccurate_seek",
		}
		filter := "trim=end_frame=1"
		if !r.m.isOnly {
			from := r.m.at - d.files.shownAt(d.files.segments[r.m.segment].firstPTS)
			options, filter = append(options, "-ss", formatSeconds(from)), pictureAtZero
		}
		n := r.addInput(append(options, "-i", "file:"+file))
		filters := []string{filter}
		if d.rung.HDR != "" {
			filters = append(filters, colourFilters(d.rung.asSource(), d.rung, r.found)...) // as the source is compared
		}
		r.addPicture(n, "v", filters, writtenPicture(i))
	}
	return nil
}

// copySegment writes the initialization segment and segment k into one file, which ffmpeg may read without access to the
// others.
func (d writtenRendition) copySegment(dir, to string, k int) (err error) {
	reader := &renditionReader{open: openIn(filepath.Join(dir, d.dir)), names: []string{initName, d.files.segments[k].name}}
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
func (r *momentDecoder) run(ctx context.Context) error {
	tools := r.tools
	tools.Threads = 1 // the pictures are few; threads would cost more than they save
	args := tools.ffmpegArgs("-progress", "pipe:1")
	if !r.found.fpsMode {
		args = append(args, "-vsync", "passthrough")
	}
	args = append(args, r.args...)
	for _, g := range r.graphs {
		args = append(args, "-filter_complex", g)
	}
	args = append(args, r.outputs...)
	cmd := command{
		tool: "ffmpeg", purpose: "compare", args: args, dir: r.work, source: r.source,
		stdout: newProgressReader(r.info.Duration, nil, time.Now), noProgress: !r.isLong,
	}
	_, err := tools.run(ctx, cmd)
	_, err = exitBySource(err)
	return err
}
