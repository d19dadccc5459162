package media

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// caps is what the ffmpeg at hand can do.
type caps struct {
	// frameMode: ffmpeg 5.1 brought -fps_mode, one per output, for -vsync,
	// one for all.
	frameMode bool
	zscale    bool
	sidedata  bool
	bwdif     bool
	// alphaVP8 and alphaVP9: the decoders that see WebM's transparency.
	alphaVP8, alphaVP9 bool
	decodable          decodable
}

func (t Tools) caps(ctx context.Context, video, audio bool) (caps, error) {
	version, err := t.list(ctx, "-version")
	if err != nil {
		return caps{}, err
	}
	filters, err := t.list(ctx, "-filters")
	if err != nil {
		return caps{}, err
	}
	codecs, err := t.list(ctx, "-encoders")
	if err != nil {
		return caps{}, err
	}
	decoders, err := t.list(ctx, "-decoders")
	if err != nil {
		return caps{}, err
	}
	can, err := t.decoders(ctx)
	if err != nil {
		return caps{}, err
	}
	for encoder, needed := range map[string]bool{"libx264": video, "aac": audio} {
		if needed && !offers(codecs, encoder) {
			return caps{}, fmt.Errorf("%w: this ffmpeg has no %s encoder", ErrToolMissing, encoder)
		}
	}
	return caps{
		decodable: can,
		frameMode: hasFrameMode(version),
		zscale:    offers(filters, "zscale") && offers(filters, "tonemap"),
		sidedata:  offers(filters, "sidedata"),
		bwdif:     offers(filters, "bwdif"),
		alphaVP8:  offers(decoders, "libvpx"),
		alphaVP9:  offers(decoders, "libvpx-vp9"),
	}, nil
}

// Known remembers what programs answered when they were asked what they can do,
// for as long as their files stay the same: four answers take a fifth of a second
// of CPU. The zero value is ready; any number of goroutines may use it.
type Known struct {
	mu      sync.Mutex
	answers map[question]string
}

type question struct {
	path, what string
	size       int64
	modified   time.Time
}

func (k *Known) recall(q question) (string, bool) {
	if k == nil {
		return "", false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	answer, ok := k.answers[q]
	return answer, ok
}

func (k *Known) keep(q question, answer string) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.answers == nil {
		k.answers = make(map[question]string)
	}
	k.answers[q] = answer
}

// Version is what ffmpeg says of itself, run as it is for sources: confined, if
// Sandbox does not say otherwise.
func (t Tools) Version(ctx context.Context) (string, error) { return t.list(ctx, "-version") }

func (t Tools) list(ctx context.Context, what string) (string, error) {
	path, err := t.path("ffmpeg")
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrToolMissing, err)
	}
	q := question{path, what, info.Size(), info.ModTime()}
	if answer, ok := t.Known.recall(q); ok {
		return answer, nil
	}
	answer := &limitedBuffer{limit: 1 << 20}
	_, err = t.run(ctx, child{tool: "ffmpeg", what: "capabilities", args: []string{"-nostdin", "-hide_banner", "-loglevel", "error", what}, stdout: answer})
	if err != nil {
		return "", fmt.Errorf("ask ffmpeg for %s: %w", what, err)
	}
	t.Known.keep(q, answer.String())
	return answer.String(), nil
}

// offers looks for a name in the second column of one of ffmpeg's lists.
func offers(list, name string) bool {
	for line := range strings.Lines(list) {
		if fields := strings.Fields(line); len(fields) > 1 && slices.Contains(strings.Split(fields[1], ","), name) {
			return true
		}
	}
	return false
}

// hasFrameMode goes by the library's version: that of the program may be a
// date, a commit or a distributor's own.
func hasFrameMode(version string) bool {
	for line := range strings.Lines(version) {
		rest, ok := strings.CutPrefix(line, "libavcodec")
		if !ok {
			continue
		}
		build, _, _ := strings.Cut(rest, "/")
		var n [2]int
		for i, part := range strings.SplitN(build, ".", 3) {
			if i < len(n) {
				n[i], _ = strconv.Atoi(strings.TrimSpace(part))
			}
		}
		return n[0] > 59 || n[0] == 59 && n[1] >= 37
	}
	return true
}
