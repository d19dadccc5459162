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

// capabilities is what the ffmpeg at hand can do.
type capabilities struct {
	// fpsMode: ffmpeg 5.1 brought -fps_mode, one per output, for -vsync,
	// one for all.
	fpsMode  bool
	zscale   bool
	sidedata bool
	bwdif    bool
	// alphaVP8 and alphaVP9: the decoders that see WebM's transparency.
	alphaVP8, alphaVP9 bool
	decoders           decoderSet
}

func (t Tools) capabilities(ctx context.Context, video, audio bool) (capabilities, error) {
	version, err := t.ffmpegOutput(ctx, "-version")
	if err != nil {
		return capabilities{}, err
	}
	filters, err := t.ffmpegOutput(ctx, "-filters")
	if err != nil {
		return capabilities{}, err
	}
	codecs, err := t.ffmpegOutput(ctx, "-encoders")
	if err != nil {
		return capabilities{}, err
	}
	decoders, err := t.ffmpegOutput(ctx, "-decoders")
	if err != nil {
		return capabilities{}, err
	}
	can, err := t.decoders(ctx)
	if err != nil {
		return capabilities{}, err
	}
	for encoder, needed := range map[string]bool{"libx264": video, "aac": audio} {
		if needed && !listsName(codecs, encoder) {
			return capabilities{}, fmt.Errorf("%w: this ffmpeg has no %s encoder", ErrToolMissing, encoder)
		}
	}
	return capabilities{
		decoders: can,
		fpsMode:  hasFPSModeOption(version),
		zscale:   listsName(filters, "zscale") && listsName(filters, "tonemap"),
		sidedata: listsName(filters, "sidedata"),
		bwdif:    listsName(filters, "bwdif"),
		alphaVP8: listsName(decoders, "libvpx"),
		alphaVP9: listsName(decoders, "libvpx-vp9"),
	}, nil
}

// CapabilityCache remembers what programs answered when they were asked what they can do,
// for as long as their files stay the same: four answers take a fifth of a second
// of CPU. The zero value is ready; any number of goroutines may use it.
type CapabilityCache struct {
	mu      sync.Mutex
	outputs map[cacheKey]string
}

type cacheKey struct {
	path, option string
	size         int64
	modified     time.Time
}

func (k *CapabilityCache) get(q cacheKey) (string, bool) {
	if k == nil {
		return "", false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	answer, ok := k.outputs[q]
	return answer, ok
}

func (k *CapabilityCache) put(q cacheKey, answer string) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.outputs == nil {
		k.outputs = make(map[cacheKey]string)
	}
	k.outputs[q] = answer
}

// Version is what ffmpeg says of itself, run as it is for sources: confined, if
// Sandbox does not say otherwise.
func (t Tools) Version(ctx context.Context) (string, error) { return t.ffmpegOutput(ctx, "-version") }

func (t Tools) ffmpegOutput(ctx context.Context, what string) (string, error) {
	path, err := t.toolPath("ffmpeg")
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrToolMissing, err)
	}
	q := cacheKey{path, what, info.Size(), info.ModTime()}
	if answer, ok := t.Cache.get(q); ok {
		return answer, nil
	}
	answer := &limitedBuffer{limit: 1 << 20}
	_, err = t.run(ctx, command{tool: "ffmpeg", purpose: "capabilities", args: []string{"-nostdin", "-hide_banner", "-loglevel", "error", what}, stdout: answer})
	if err != nil {
		return "", fmt.Errorf("ask ffmpeg for %s: %w", what, err)
	}
	t.Cache.put(q, answer.String())
	return answer.String(), nil
}

// listsName looks for a name in the second column of one of ffmpeg's lists.
func listsName(list, name string) bool {
	for line := range strings.Lines(list) {
		if fields := strings.Fields(line); len(fields) > 1 && slices.Contains(strings.Split(fields[1], ","), name) {
			return true
		}
	}
	return false
}

// hasFPSModeOption goes by the library's version: that of the program may be a
// date, a commit or a distributor's own.
func hasFPSModeOption(version string) bool {
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
