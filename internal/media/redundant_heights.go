package media

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/internal/childproc"
)

const (
	// redundantSSIM is the structural similarity from which nobody sees a difference. Cartoons and films that have all details of their
	// size are at 0.993 to 0.996, enlarged ones above 0.999.
	redundantSSIM = 0.998
	// comparedFrames are how many keyframes of a source must be as similar.
	comparedFrames = 8
	// leastHeight is a size that is never left out: a few frames say little about a video.
	leastHeight = 480
)

// RedundantHeights returns the largest sizes of a ladder that show no more than the next smaller one, as those of a film which was
// enlarged to 1080p: scaled down to the next size and up again, some keyframes are still the same. It decodes only these, and only of
// containers in which they can be found.
func (t Tools) RedundantHeights(ctx context.Context, src string, info *Info, rungs []Rung) (heights []int, err error) {
	var sizes []Rung
	for _, r := range rungs {
		if n := len(sizes); !r.IsAudio() && (n == 0 || sizes[n-1].NominalHeight() != r.NominalHeight()) {
			sizes = append(sizes, r)
		}
	}
	if info.Video == nil || info.Joins != nil || !slices.Contains(seekableContainers, info.Container) {
		return nil, nil
	}
	source, err := filepath.Abs(src)
	if err != nil {
		return nil, err
	}
	t = t.withStepCounter()
	ctx, cancel := t.withTimeLimit(ctx, info.decodedSeconds())
	defer cancel()
	for i := 0; i+1 < len(sizes) && sizes[i].NominalHeight() > leastHeight; i++ {
		least, err := t.leastSimilarity(ctx, source, info, sizes[i], sizes[i+1])
		if err != nil {
			return nil, fmt.Errorf("compare sizes: %w", err)
		}
		if least < redundantSSIM {
			break // smaller ones lose more
		}
		heights = append(heights, sizes[i].NominalHeight())
	}
	return heights, nil
}

// leastSimilarity is the lowest SSIM of some frames of a size and the same in a smaller one; 0 if none can be decoded.
func (t Tools) leastSimilarity(ctx context.Context, source string, info *Info, size, smaller Rung) (float64, error) {
	c, err := t.capabilities(ctx)
	if err != nil {
		return 0, err
	}
	v := info.Video
	size.HDR = "" // the comparison is one of tone-mapped pictures
	filters := []string{uniformFrames(v), "trim=end_frame=1"}
	if v.Interlaced {
		filters = append(filters, deinterlacer(v, c, false))
	}
	filters = slices.Concat(filters, orientationFilters(v), colourFilters(v, size, c), []string{"setpts=0"})
	args, graph, joined := t.ffmpegArgs(), "", ""
	for i := range comparedFrames {
		at := v.Start - info.FormatStart + v.Duration*(float64(i)+0.5)/comparedFrames
		options := append(sourceOptions(info, c), "-skip_frame", "nokey", "-noaccurate_seek", "-ss", formatSeconds(at), "-t", "1")
		args = append(args, input(source, options...)...)
		graph += fmt.Sprintf("[%d:%d]%s[p%[1]d];", i, v.Index, strings.Join(filters, ","))
		joined += fmt.Sprintf("[p%d]", i)
	}
	graph += fmt.Sprintf("%sconcat=n=%d,split=2[own][all];[all]scale=w=%d:h=%d:flags=bicubic,scale=w=%d:h=%d:flags=bicubic[back];"+
		"[own][back]ssim,metadata=mode=print:key=lavfi.ssim.All:file=-", joined, comparedFrames, smaller.Width, smaller.Height,
		size.Width, size.Height)
	frames, least := 0, 1.0
	lines := childproc.Lines(func(line []byte) {
		if value, ok := bytes.CutPrefix(line, []byte("lavfi.ssim.All=")); ok {
			similarity, _ := jsonNumber(value).seconds() // 0 otherwise
			frames, least = frames+1, min(least, similarity)
		}
	})
	_, err = t.run(ctx, command{
		tool: "ffmpeg", purpose: "compare sizes", source: source, stdout: lines,
		args: append(args, "-filter_complex", graph, "-f", "null", "-"),
	})
	if _, err := exitBySource(err); err != nil {
		return 0, err
	}
	if frames == 0 {
		return 0, nil
	}
	return least, nil
}
