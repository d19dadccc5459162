// Command media compares the size, the quality and the cost of videos that Cuelight makes with those of other command lines:
//
//	make bench-media ARGS="film.mp4 screen.mkv …"
//
// Every method makes the same sizes of each title, with the same highest bitrates, at three qualities. It prints, and keeps in
// bench/results/media.md, how many bits each method needs for the quality of Cuelight's default, interpolated, and the processor time
// of the whole ladder at its own default. Quality is SSIM against the source in the size of the rendition, of the largest one.
//
// Cuelight makes all sizes in one ffmpeg, and its time includes the checks of the result. The others are reconstructed from the
// published sources of PeerTube and VLog: one ffmpeg for each size.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/internal/media"
)

func main() {
	out := flag.String("out", "bench/results/media.md", "file for the table")
	auto := flag.Bool("auto", false, "measure quality: auto instead")
	flag.StringVar(&maxSeconds, "seconds", maxSeconds, "how much of each title is used")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := error(nil)
	if *auto {
		err = autoQuality(ctx, flag.Args())
	} else {
		err = run(ctx, flag.Args(), *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-media:", err)
		os.Exit(1)
	}
}

// method is how a ladder of renditions is made; name is its column.
type method struct {
	name string
	crf  int // its default
	make func(ctx context.Context, t *title, crf int, dir string) (top string, err error)
}

// methods are the built-in profiles of package profiles, and the others.
var methods = []method{
	cuelight("quick", "superfast", 24), cuelight("balanced", "veryfast", 24), cuelight("small", "fast", 25),
	{"PeerTube", 23, eachRung(func(t *title, r media.Rung, crf int) []string {
		return []string{
			"-preset", "veryfast", "-crf", strconv.Itoa(crf), "-b_strategy", "1", "-bf", "16",
			"-g", strconv.Itoa(int(math.Round(2 * t.info.Video.FPS))), "-vf", fmt.Sprintf("scale=%d:%d", r.Width, r.Height), "-hls_time", "4",
		}
	})},
	{"VLog", 23, eachRung(func(_ *title, r media.Rung, crf int) []string {
		return []string{
			"-preset", "medium", "-crf", strconv.Itoa(crf), "-b:v", strconv.Itoa(r.VideoBitrate),
			"-vf", fmt.Sprintf("scale=%d:%d", r.Width, r.Height), "-hls_time", "6",
		}
	})},
}

func cuelight(name, preset string, crf int) method {
	return method{name, crf, func(ctx context.Context, t *title, crf int, dir string) (string, error) {
		tools := media.Tools{Preset: preset, CRF: crf, Sandbox: media.SandboxOff}
		out, err := tools.Transcode(ctx, t.path, t.info, t.rungs, dir, nil)
		if err != nil {
			return "", err
		}
		return filepath.Join(dir, out.Video[0].Playlist), nil
	}}
}

// eachRung makes each size with an ffmpeg of its own.
func eachRung(args func(*title, media.Rung, int) []string) func(context.Context, *title, int, string) (string, error) {
	return func(ctx context.Context, t *title, crf int, dir string) (string, error) {
		for _, r := range t.rungs {
			out := filepath.Join(dir, r.Name)
			if err := os.Mkdir(out, 0o755); err != nil {
				return "", err
			}
			all := slices.Concat([]string{"-nostdin", "-v", "error", "-i", "file:" + t.path, "-map", "0:v:0", "-an", "-c:v", "libx264"},
				args(t, r, crf), []string{
					"-maxrate", strconv.Itoa(r.VideoBitrate), "-bufsize", strconv.Itoa(2 * r.VideoBitrate), "-pix_fmt", "yuv420p",
					"-f", "hls", "-hls_playlist_type", "vod", "-hls_segment_type", "fmp4", "-hls_list_size", "0", filepath.Join(out, "index.m3u8"),
				})
			if text, err := exec.CommandContext(ctx, "ffmpeg", all...).CombinedOutput(); err != nil {
				return "", fmt.Errorf("%w: %s", err, text)
			}
		}
		return filepath.Join(dir, t.rungs[0].Name, "index.m3u8"), nil
	}
}

// title is a source.
type title struct {
	path  string
	info  *media.Info
	rungs []media.Rung // of the picture
}

// maxSeconds is how much of a title is used.
var maxSeconds = "12"

// readTitle makes an upload of good quality from a file, in dir. Its colours are said to be those of BT.709: Cuelight converts others,
// and the others do not, so that what they make could not be compared.
func readTitle(ctx context.Context, file, dir string) (*title, error) {
	path := filepath.Join(dir, "source.mp4")
	text, err := exec.CommandContext(ctx, "ffmpeg", "-nostdin", "-v", "error", "-i", "file:"+file, "-t", maxSeconds, "-an", "-map", "0:v:0",
		"-vf", "setparams=range=tv:color_primaries=bt709:color_trc=bt709:colorspace=bt709,format=yuv420p", "-fps_mode", "cfr",
		"-c:v", "libx264", "-preset", "veryfast", "-crf", "12", path).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	info, err := media.Tools{Sandbox: media.SandboxOff}.Probe(ctx, path)
	if err != nil {
		return nil, err
	}
	if info.Video == nil {
		return nil, fmt.Errorf("%s has no picture", path)
	}
	rungs := slices.DeleteFunc(media.Ladder(info), media.Rung.IsAudio)
	return &title{path, info, rungs}, nil
}

// point is what a method made at one quality.
type point struct {
	bits, ssim, luma float64 // of the largest size; bits per second; the SSIM of all planes and of the luma
	cpu              time.Duration
}

func (t *title) measure(ctx context.Context, w method, crf int) (p point, err error) {
	dir, err := os.MkdirTemp("", "cuelight-bench-media-")
	if err != nil {
		return p, err
	}
	defer os.RemoveAll(dir)
	before := childrenCPU()
	top, err := w.make(ctx, t, crf, dir)
	if err != nil {
		return p, fmt.Errorf("%s: %w", w.name, err)
	}
	p.cpu = childrenCPU() - before
	segments, err := filepath.Glob(filepath.Join(filepath.Dir(top), "*.m4s"))
	for _, s := range segments {
		if info, err := os.Stat(s); err == nil {
			p.bits += 8 * float64(info.Size()) / t.info.Duration
		}
	}
	if err == nil {
		p.luma, p.ssim, err = t.ssim(ctx, top)
	}
	return p, err
}

var ssimPattern = regexp.MustCompile(`SSIM Y:([\d.]+).* All:([\d.]+)`)

// ssim compares a rendition with the source frame by frame, in order: their times differ by rounding.
func (t *title) ssim(ctx context.Context, playlist string) (luma, all float64, err error) {
	r := t.rungs[0]
	graph := fmt.Sprintf("[1:v:0]scale=%d:%d,format=yuv420p,settb=1/1000,setpts=40*N[a];"+
		"[0:v:0]settb=1/1000,setpts=40*N[b];[b][a]ssim", r.Width, r.Height)
	cmd := exec.CommandContext(ctx, "ffmpeg", "-nostdin", "-i", playlist, "-i", "file:"+t.path, "-lavfi", graph, "-f", "null", "-")
	text, err := cmd.CombinedOutput()
	found := ssimPattern.FindStringSubmatch(string(text))
	if err != nil || found == nil {
		return 0, 0, fmt.Errorf("compare with the source: %v: %s", err, text)
	}
	luma, err1 := strconv.ParseFloat(found[1], 64)
	all, err2 := strconv.ParseFloat(found[2], 64)
	return luma, all, errors.Join(err1, err2)
}

func childrenCPU() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_CHILDREN, &r) // it fails only for other arguments
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// bitsAt interpolates the bits that a method needs for a quality: their logarithm is nearly linear in that of the distance from 1.
func bitsAt(points []point, ssim float64) float64 {
	quality := func(p point) float64 { return -math.Log(1 - p.ssim) }
	points = slices.SortedFunc(slices.Values(points), func(a, b point) int { return cmp.Compare(quality(a), quality(b)) })
	x := -math.Log(1 - ssim)
	for i := range points[1:] {
		a, b := points[i], points[i+1]
		if x <= quality(b) || i == len(points)-2 {
			share := (x - quality(a)) / (quality(b) - quality(a))
			return math.Exp(math.Log(a.bits) + share*(math.Log(b.bits)-math.Log(a.bits)))
		}
	}
	return math.NaN()
}

const heading = "Bits for the same SSIM / processor time of all sizes, as ratios to `balanced`. `make bench-media` describes itself in\n" +
	"bench/media/main.go.\n\n"

// reference is the method that the others are compared with.
const reference = "balanced"

func run(ctx context.Context, paths []string, out string) error {
	if len(paths) == 0 {
		return fmt.Errorf("name the files of titles: make bench-media ARGS=\"film.mp4 …\"")
	}
	var b strings.Builder
	line := func(cells ...string) {
		text := "| " + strings.Join(cells, " | ") + " |"
		fmt.Println(text)
		b.WriteString(text + "\n")
	}
	header, rule := []string{"title", "SSIM"}, []string{"---", "---"}
	for _, w := range methods {
		header, rule = append(header, w.name), append(rule, "---")
	}
	line(header...)
	line(rule...)
	products := make([][2]float64, len(methods)) // of bits, of time, as logarithms
	for _, path := range paths {
		cells, ratios, err := compare(ctx, path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		line(cells...)
		for i, r := range ratios {
			products[i][0] += math.Log(r[0]) / float64(len(paths))
			products[i][1] += math.Log(r[1]) / float64(len(paths))
		}
	}
	mean := []string{"**geometric mean**", ""}
	for _, p := range products {
		mean = append(mean, fmt.Sprintf("**%.2f / %.2f**", math.Exp(p[0]), math.Exp(p[1])))
	}
	line(mean...)
	return os.WriteFile(out, []byte(heading+b.String()), 0o644)
}

// compare returns a line of the table, and the ratios of bits and of time to the reference.
func compare(ctx context.Context, path string) (cells []string, ratios [][2]float64, err error) {
	dir, err := os.MkdirTemp("", "cuelight-title-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	t, err := readTitle(ctx, path, dir)
	if err != nil {
		return nil, nil, err
	}
	all := make([][]point, len(methods))
	var base point
	for i, w := range methods {
		for _, crf := range []int{w.crf - 4, w.crf, w.crf + 4} {
			p, err := t.measure(ctx, w, crf)
			if err != nil {
				return nil, nil, err
			}
			all[i] = append(all[i], p)
		}
		if w.name == reference {
			base = all[i][1]
		}
	}
	v := t.info.Video
	name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	cells = []string{fmt.Sprintf("%s, %dx%d", name, v.Width, v.Height), fmt.Sprintf("%.4f", base.ssim)}
	for i := range methods {
		r := [2]float64{bitsAt(all[i], base.ssim) / base.bits, float64(all[i][1].cpu) / float64(base.cpu)}
		ratios = append(ratios, r)
		cells = append(cells, fmt.Sprintf("%.2f / %.2f", r[0], r[1]))
	}
	return cells, ratios, nil
}
