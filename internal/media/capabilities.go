package media

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// capabilities is what the installed ffmpeg supports.
type capabilities struct {
	// fpsMode means that ffmpeg has -fps_mode (since 5.1), which applies to one
	// output, instead of -vsync, which applies to all.
	fpsMode  bool
	zscale   bool
	sidedata bool
	bwdif    bool
	// forcesAV1 means that keyframes of AV1 can be forced (since ffmpeg 7.0). Before, they have a constant distance.
	forcesAV1 bool
	decoders  decoderSet
	encoders  []string
}

// capabilities returns what ffmpeg supports, or ErrToolMissing if it lacks an encoder of the renditions.
func (t Tools) capabilities(ctx context.Context, renditions ...renditionJob) (capabilities, error) {
	version, err1 := t.Version(ctx)
	filters, err2 := t.ffmpegOutput(ctx, "-filters")
	decoders, encoders, err3 := t.codecs(ctx)
	if err := cmp.Or(err1, err2, err3); err != nil {
		return capabilities{}, err
	}
	c := capabilities{
		decoders:  decoders,
		encoders:  encoders,
		fpsMode:   isCodecVersion(version, 59, 37),
		forcesAV1: isCodecVersion(version, 61, 0),
		zscale:    hasFilter(filters, "zscale") && hasFilter(filters, "tonemap"),
		sidedata:  hasFilter(filters, "sidedata"),
		bwdif:     hasFilter(filters, "bwdif"),
	}
	for _, j := range renditions {
		encoder := "aac"
		if j.audio == nil {
			encoder = libx264.encoderOf(j.rung, c).name
		}
		if !slices.Contains(encoders, encoder) {
			return c, fmt.Errorf("%w: this ffmpeg has no %s encoder", ErrToolMissing, encoder)
		}
	}
	return c, nil
}

// OptionalFilters returns the names of the filters that this ffmpeg has and that Transcode uses only if they
// are there: bwdif for interlaced sources; zscale for colours; tonemap and sidedata for HDR.
func (t Tools) OptionalFilters(ctx context.Context) ([]string, error) {
	text, err := t.ffmpegOutput(ctx, "-filters")
	if err != nil {
		return nil, err
	}
	found := []string{}
	for _, name := range []string{"bwdif", "sidedata", "tonemap", "zscale"} {
		if hasFilter(text, name) {
			found = append(found, name)
		}
	}
	return found, nil
}

// CapabilityCache remembers the output of programs that list their capabilities,
// until their files change; the lists take a fifth of a second of processor
// time. It also remembers for ten minutes which hardware encoders failed. The zero
// value is ready, and goroutines may share it.
type CapabilityCache struct {
	outputs     sync.Map // cacheKey → string
	pausedUntil sync.Map // name of an encoder → time.Time
}

type cacheKey struct {
	path, option string
	size         int64
	modified     time.Time
}

// Version returns the output of "ffmpeg -version", run in the sandbox like every
// other call.
func (t Tools) Version(ctx context.Context) (string, error) { return t.ffmpegOutput(ctx, "-version") }

func (t Tools) ffmpegOutput(ctx context.Context, option string) (string, error) {
	path, err := t.toolPath("ffmpeg")
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrToolMissing, err)
	}
	key := cacheKey{path, option, info.Size(), info.ModTime()}
	if t.Cache != nil {
		if text, ok := t.Cache.outputs.Load(key); ok {
			return text.(string), nil
		}
	}
	out := &limitedBuffer{limit: 1 << 20}
	args := []string{"-nostdin", "-hide_banner", "-loglevel", "error", option}
	if _, err := t.run(ctx, command{tool: "ffmpeg", purpose: "capabilities", args: args, stdout: out}); err != nil {
		return "", fmt.Errorf("list capabilities with ffmpeg %s: %w", option, err)
	}
	if t.Cache != nil {
		t.Cache.outputs.Store(key, out.String())
	}
	return out.String(), nil
}

// hasFilter reports whether a name is in the second column of ffmpeg's list.
func hasFilter(list, name string) bool {
	for line := range strings.Lines(list) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == name {
			return true
		}
	}
	return false
}

// isCodecVersion reports whether libavcodec has at least a version, because the program's version may
// be a date, a commit or a distributor's own.
func isCodecVersion(version string, major, minor int) bool {
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
		return n[0] > major || n[0] == major && n[1] >= minor
	}
	return true
}
