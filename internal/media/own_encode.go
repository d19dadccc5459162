package media

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
)

// How much worse than an encode of this host a rendition may be, and how bad at most.
const (
	similaritySlack, lowestSimilarity = 0.1, 0.5
	colourSlack, lowestColourPart     = 4.0, 0.7
	motionSlack                       = 0.1
	detailPart                        = 0.5
	// ownPreset is the one that needs the most bits for a picture: a worker may use it.
	ownPreset = "ultrafast"
)

// compareWithOwn judges a moment whose pictures are further from the source's than those of
// most videos. Noise does not fit into the rate of a rendition, and no encoder can keep it.
// So this host encodes the moment's segment at the same rate, and the rendition must be about
// as good.
func (u *untrustedCheck) compareWithOwn(ctx context.Context, m moment) error {
	own := make([]comparison, len(u.video))
	if err := u.encodeOwn(ctx, m, own); err != nil {
		return err
	}
	return u.decodeMoment(ctx, m, false, func(raw *rawFiles) error {
		for i := range u.video {
			c, err := u.comparePicture(m, i, raw)
			if err == nil {
				err = c.judgePicture(own[i].limits())
			}
			if err != nil {
				return err
			}
		}
		for i := range u.audio {
			if err := u.compareSound(m, i, raw); err != nil {
				return err
			}
		}
		return nil
	})
}

// limits are those for a rendition, where this is what an encode of this host reached.
func (c comparison) limits() limits {
	detail := math.Inf(-1) // no encoder keeps it
	if c.detail >= minDetail {
		detail = min(minDetail, detailPart*c.detail)
	}
	return limits{
		similarity:  min(minSimilarity, max(c.similarity-similaritySlack, lowestSimilarity)),
		colourError: max(maxColourError, c.colour+colourSlack),
		colourShare: min(minColourShare, lowestColourPart*c.colourShare),
		motionMatch: min(minMotionMatch, c.motionMatch-motionSlack),
		detail:      detail,
	}
}

// encodeOwn encodes the segment of a moment in all sizes, and compares that with the source.
func (u *untrustedCheck) encodeOwn(ctx context.Context, m moment, own []comparison) error {
	work, err := os.MkdirTemp(u.dir, ".compare-")
	if err != nil {
		return spaceError(err)
	}
	defer os.RemoveAll(work)
	files := u.video[0].files
	from := max(files.shownAt(files.segments[m.segment].firstPTS), 0)
	encode := u.newSampleRun(moment{at: from + afterFrame, gap: m.gap}, work)
	encode.addOwnEncode(m.at + m.gap - from)
	if err := encode.run(ctx); err != nil {
		return err
	}
	source := u.newSampleRun(m, work)
	source.addSource(false)
	if err := source.run(ctx); err != nil {
		return err
	}
	decode := u.newSampleRun(m, work)
	decode.own = from
	if err := decode.addRenditions(); err != nil {
		return err
	}
	if err := decode.run(ctx); err != nil {
		return err
	}
	raw := &rawFiles{dir: work}
	for i := range own {
		if own[i], err = u.comparePicture(m, i, raw); err != nil {
			return fmt.Errorf("%w: this host's own encode gave no picture: %w", errNotDecoded, err)
		}
	}
	return raw.err
}

func ownName(i int) string { return fmt.Sprintf("own-%d.mp4", i) }

func ownOptions(from float64) []string {
	options := []string{"-protocol_whitelist", "file", "-f", "mov", "-codec_whitelist", "h264", "-noaccurate_seek"}
	if from > 0 {
		options = append(options, "-ss", formatSeconds(from))
	}
	return options
}

// addOwnEncode encodes so many seconds of the source from the moment on, like Transcode. The
// rate control begins with an almost empty buffer, as in the middle of a video.
func (r *sampleRun) addOwnEncode(seconds float64) {
	u, v := r.u, r.u.info.Video
	options, shift := u.sourceInput(u.knownKeyframe(), r.m.at+u.plan.offset-2*afterFrame)
	n := r.addInput(options, u.source)
	chain := r.sourceChain(shift, r.m.gap, true)
	two := twoPictures(r.m.gap)
	for i, filter := range chain {
		if filter == two {
			chain[i] = "trim=start=0,setpts=PTS-STARTPTS"
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "[%d:%d]%s,split=%d", n, v.Index, strings.Join(chain, ","), len(u.video))
	for i := range u.video {
		fmt.Fprintf(&b, "[in%d]", i)
	}
	for i, d := range u.video {
		rung := d.rung
		fmt.Fprintf(&b, ";[in%d]scale=w=%d:h=%d:flags=bicubic,format=yuv420p[own%d]", i, rung.Width, rung.Height, i)
		r.outputs = append(r.outputs, "-map", fmt.Sprintf("[own%d]", i))
		r.outputs = append(r.outputs, fpsModeArgs("vfr", u.found)...)
		r.outputs = append(r.outputs, "-t", formatSeconds(seconds+pictureGap), "-c:v", "libx264", "-preset", ownPreset,
			"-crf", strconv.Itoa(cmp.Or(rung.Quality, defaultCRF)), "-maxrate", strconv.Itoa(rung.VideoBitrate),
			"-bufsize", strconv.Itoa(2*rung.VideoBitrate),
			"-rc_init_occupancy", strconv.Itoa(rung.VideoBitrate/4), "-sc_threshold", "0", "-g", "600", "-f", "mp4",
			"file:"+ownName(i))
	}
	r.graphs = append(r.graphs, b.String())
	r.isLong = true
}
