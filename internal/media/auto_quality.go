package media

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	// targetSSIM is the mean structural similarity (luma) that AutoQuality aims at: 0.981, and a margin, because pieces are not
	// the video. The CRF of 24 gives 0.975 to 0.999, by the title.
	targetSSIM = 0.982
	// bestAutoCRF and worstAutoCRF limit what it chooses: noise needs many bits for a similarity that nobody sees, and in text the
	// mean hides the worst.
	bestAutoCRF, worstAutoCRF = 18, 32
	// probedShare is how much of a source is encoded if the largest size has all pixels of the ladder. Two encodes of it, and their
	// decoding, take about an eighth of the time of the transcode of a film.
	probedShare = 0.055
	// pieceSeconds is short, because many scenes say more about a film than whole segments of a few.
	pieceSeconds         = 2
	minPieces, maxPieces = 4, 30
	// leastSlope is below what one step of the CRF adds to the logarithm of the distance from similarity 1 in all titles, 0.07 to 0.2:
	// less means that the limit of the bitrate decides.
	leastSlope = 0.06
)

// probedCRFs are encoded. Between and near them the logarithm of that distance is linear in the CRF.
var probedCRFs = [2]int{21, 28}

// AutoQuality returns the CRF with which the largest H.264 rung of a ladder is expected to have a similarity to the source of
// targetSSIM: it encodes evenly distributed pieces at two CRFs. It returns 0 if that cannot be measured: the source has no picture, or
// shows stills, or ffmpeg fails because of it.
func (t Tools) AutoQuality(ctx context.Context, src string, info *Info, rungs []Rung) (crf int, err error) {
	share, top := 0.0, Rung{}
	for _, r := range rungs {
		if !r.IsAudio() && r.Codec == "" {
			if top.Name == "" {
				top = r
			}
			share += probedShare * float64(r.Width*r.Height) / float64(top.Width*top.Height)
		}
	}
	if top.Name == "" || info.Video == nil || planTiming(info).repeatedFrames > 0 {
		return 0, nil
	}
	source, err := filepath.Abs(src)
	if err != nil {
		return 0, err
	}
	t = t.joining(source, info).withStepCounter()
	ctx, cancel := t.withTimeLimit(ctx, info.decodedSeconds())
	defer cancel()
	seconds := info.Video.Duration
	pieces := min(max(minPieces, int(seconds*share/pieceSeconds)), maxPieces, max(1, int(seconds/pieceSeconds)))
	found, err := t.similarities(ctx, source, info, top, pieces)
	switch {
	case err != nil:
		return 0, fmt.Errorf("measure quality: %w", err)
	case len(found) != len(probedCRFs):
		return 0, nil
	}
	return chooseCRF(found), nil
}

// chooseCRF interpolates, and rounds to the better quality.
func chooseCRF(found []float64) int {
	loss := func(ssim float64) float64 { return math.Log(max(1-ssim, 1e-6)) }
	slope := max(leastSlope, (loss(found[1])-loss(found[0]))/float64(probedCRFs[1]-probedCRFs[0]))
	crf := float64(probedCRFs[0]) + (loss(targetSSIM)-loss(found[0]))/slope
	return int(math.Floor(min(max(crf, bestAutoCRF), worstAutoCRF)))
}

var meanSSIM = regexp.MustCompile(`SSIM Mean Y:([0-9.]+)`)

// similarities encodes pieces of a source at the probed CRFs. The encoder compares with what it encodes. There are fewer values if ffmpeg
// fails because of the source.
func (t Tools) similarities(ctx context.Context, source string, info *Info, top Rung, pieces int) (found []float64, err error) {
	c, err := t.capabilities(ctx)
	if err != nil {
		return nil, err
	}
	v := info.Video
	filters := []string{uniformFrames(v)}
	if v.Interlaced {
		filters = append(filters, deinterlacer(v, c, v.framesPerDecoded() == 2))
	}
	filters = slices.Concat(filters, orientationFilters(v), colourFilters(v, top, c))
	args, graph, joined := t.ffmpegArgs("-loglevel", "info", "-progress", "pipe:1", "-max_error_rate", "1"), "", ""
	for i := range pieces {
		at := v.Start - ffmpegZero(info) + max(0, v.Duration*(float64(i)+0.5)/float64(pieces)-pieceSeconds/2)
		args = append(args, input(source, append(sourceOptions(info, c), "-ss", formatSeconds(at), "-t", strconv.Itoa(pieceSeconds))...)...)
		graph += fmt.Sprintf("[%d:%d]%s[p%[1]d];", i, v.Index, strings.Join(filters, ","))
		joined += fmt.Sprintf("[p%d]", i)
	}
	graph += fmt.Sprintf("%sconcat=n=%d,split[v0][v1]", joined, pieces)
	args = append(args, "-filter_complex", graph)
	for i, crf := range probedCRFs {
		s := t.encoderSettings(top, h264LevelFor(top.Width, top.Height, maxDecodeRate(v, planTiming(info)), top.VideoBitrate))
		s.crf, s.keyframes = crf, planTiming(info).keyframes()
		args = append(append(args, "-map", fmt.Sprintf("[v%d]", i)), libx264.args(s)...)
		args = append(args, "-x264-params", "ssim=1", "-f", "null", "-")
	}
	report, err := t.run(ctx, command{tool: "ffmpeg", purpose: "measure quality", source: source, args: args})
	if _, err := exitBySource(err); err != nil {
		return nil, err
	}
	for _, value := range meanSSIM.FindAllStringSubmatch(report.tail, -1) {
		similarity, _ := strconv.ParseFloat(value[1], 64) // 0 otherwise
		found = append(found, similarity)
	}
	slices.Sort(found)
	slices.Reverse(found) // the encoders end in any order, and the lower CRF is the better
	return found, nil
}
