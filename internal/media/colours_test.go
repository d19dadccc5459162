package media

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// patches are colours that the primaries of every test can show: zscale clips others, unless the processor has AVX-512.
var patches = [][3]byte{
	{180, 60, 60}, {60, 180, 60}, {60, 60, 180}, {128, 128, 128}, {200, 160, 60}, {235, 235, 235},
}

const patchSide = 64

// patchClip makes a source of three frames, three patches wide and two high, converted with a filter.
func patchClip(t *testing.T, filter, encode string) string {
	t.Helper()
	var frame []byte
	for y := range 2 * patchSide {
		for x := range 3 * patchSide {
			p := patches[y/patchSide*3+x/patchSide]
			frame = append(frame, p[:]...)
		}
	}
	raw := filepath.Join(t.TempDir(), "patches.rgb")
	if err := os.WriteFile(raw, bytes.Repeat(frame, 3), 0o644); err != nil {
		t.Fatal(err)
	}
	return makeClip(t, "a.mkv", fmt.Sprintf("-f rawvideo -pix_fmt rgb24 -s %dx%d -r 10 -i %s -vf format=gbrp,%s %s",
		3*patchSide, 2*patchSide, raw, filter, encode))
}

// shownPatches are the colours in the middle of the patches of a picture.
func shownPatches(t *testing.T, file string) (shown [][3]byte) {
	t.Helper()
	pixels := ffmpeg(t, "-i", file, "-map", "0:v:0", "-frames:v", "1",
		"-vf", fmt.Sprintf("scale=w=%d:h=%d:flags=accurate_rnd+full_chroma_int+full_chroma_inp,format=gbrp,"+
			"format=rgb24", 3*patchSide, 2*patchSide), "-f", "rawvideo", "-")
	for i := range patches {
		at := 3 * ((i/3*patchSide+patchSide/2)*3*patchSide + i%3*patchSide + patchSide/2)
		shown = append(shown, [3]byte(pixels[at:at+3]))
	}
	return shown
}

func wantPatches(t *testing.T, what string, got, want [][3]byte, within float64) {
	t.Helper()
	for i := range want {
		for c := range 3 {
			if math.Abs(float64(got[i][c])-float64(want[i][c])) > within {
				t.Errorf("%s: patch %v is %v", what, want[i], got[i])
				break
			}
		}
	}
}

// colouredSource is a source in a colour space that its tags name.
type colouredSource struct {
	matrix, primaries, transfer, format string
	isFull                              bool
}

// make converts from one transfer to c's, if those differ by more than name.
func (c colouredSource) make(t *testing.T, transfer string) string {
	t.Helper()
	if slices.Contains(zscaleTransfers, c.transfer) {
		transfer = c.transfer
	}
	levels, primaries := "tv", cmp.Or(c.primaries, "bt2020")
	if c.isFull {
		levels = "pc"
	}
	// ffmpeg 5 writes the tags of the options, ffmpeg 7 those of the frames.
	return patchClip(t, fmt.Sprintf("zscale=min=gbr:rin=pc:pin=bt709:tin=bt709:m=%s:p=%s:t=%s:r=%s:npl=100,format=%s,"+
		"setparams=color_trc=%s", strings.Replace(c.matrix, "smpte240m", "7", 1), primaries, transfer, levels, c.format,
		cmp.Or(c.transfer, "unknown")),
		fmt.Sprintf("-c:v ffv1 -colorspace %s -color_primaries %s -color_trc %s -color_range %s",
			strings.Replace(c.matrix, "gbr", "rgb", 1), cmp.Or(c.primaries, "unknown"), cmp.Or(c.transfer, "unknown"), levels))
}

// shown publishes a source, without the checks that publish makes.
func shown(t *testing.T, tools Tools, src string) (info *Info, warnings []string, rendition, poster [][3]byte) {
	t.Helper()
	dir := t.TempDir()
	info, err := tools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	out, err := tools.Transcode(t.Context(), src, info, Ladder(info)[:1], dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	jpeg := filepath.Join(t.TempDir(), "poster.jpg")
	if err := tools.Poster(t.Context(), src, info, jpeg); err != nil {
		t.Fatal(err)
	}
	return info, append(info.Warnings, out.Warnings...), shownPatches(t, filepath.Join(dir, out.Video[0].Playlist)),
		shownPatches(t, jpeg)
}

func TestTranscode_ShowsColoursOfEverySpace(t *testing.T) {
	t.Parallel()
	for _, c := range []colouredSource{
		{"ycgco", "bt709", "bt709", "yuv444p", false},
		{"bt2020nc", "bt2020", "bt2020-10", "yuv420p12le", false},
		{"bt2020nc", "", "", "yuv444p12le", true},
		{"bt2020c", "bt2020", "bt2020-10", "yuv420p12le", false},
		{"bt709", "smpte432", "bt709", "yuv420p12le", false},
		{"bt709", "smpte431", "bt709", "yuv422p10le", false},
		{"smpte240m", "smpte240m", "smpte240m", "yuv420p10le", false},
		{"fcc", "bt470m", "bt709", "yuv422p12le", false},
		{"smpte170m", "smpte170m", "smpte170m", "yuv411p", false},
		{"bt470bg", "bt709", "bt709", "yuv420p", true},
		{"gbr", "bt709", "iec61966-2-1", "gbrp", true},
		{"gbr", "smpte432", "bt709", "gbrp12le", true},
		{"bt709", "bt709", "linear", "yuv444p12le", false},
	} {
		t.Run(fmt.Sprintf("%s %s %s %v", c.matrix, c.primaries, c.format, c.isFull), func(t *testing.T) {
			t.Parallel()
			_, warnings, rendition, poster := shown(t, fastTools, c.make(t, "bt709"))
			wantPatches(t, "rendition", rendition, patches, 3)
			wantPatches(t, "poster", poster, patches, 4)
			if len(warnings) > 0 {
				t.Errorf("warnings %q", warnings)
			}
		})
	}
}

func TestTranscode_ShowsHDRAlikeInEverySpace(t *testing.T) {
	t.Parallel()
	for transfer, spaces := range map[string][]colouredSource{
		"smpte2084": {
			{"bt2020nc", "smpte432", "", "yuv420p12le", false}, {"bt709", "bt709", "", "yuv420p12le", false},
			{"ictcp", "bt2020", "", "yuv444p12le", false}, {"gbr", "smpte432", "", "gbrp12le", true},
			{"bt2020nc", "bt2020", "", "yuv420p12le", true},
		},
		"arib-std-b67": {{"bt2020nc", "smpte432", "", "yuv420p12le", false}},
	} {
		usual := colouredSource{"bt2020nc", "bt2020", transfer, "yuv420p12le", false}
		_, _, want, wantPoster := shown(t, fastTools, usual.make(t, transfer))
		for _, c := range spaces {
			t.Run(fmt.Sprintf("%s %s %s", transfer, c.matrix, c.primaries), func(t *testing.T) {
				t.Parallel()
				c.transfer = transfer
				_, warnings, rendition, poster := shown(t, fastTools, c.make(t, transfer))
				wantPatches(t, "rendition", rendition, want, 3)
				wantPatches(t, "poster", poster, wantPoster, 4)
				if len(warnings) > 0 {
					t.Errorf("warnings %q", warnings)
				}
			})
		}
	}
}

func TestTranscode_WarnsOfColoursThatItCannotConvert(t *testing.T) {
	t.Parallel()
	none := script(t, "case \"$*\" in *-filters) ffmpeg \"$@\" | grep -v zscale ;; *) exec ffmpeg \"$@\" ;; esac\n")
	for name, c := range map[string]struct {
		source colouredSource
		ffmpeg string
		want   string
		within float64
	}{
		"unknown transfer":       {colouredSource{"bt709", "bt709", "smpte428", "yuv420p", false}, "", "transfer smpte428", 3},
		"YCgCo without zscale":   {colouredSource{"ycgco", "bt709", "bt709", "yuv444p", false}, none, "no zscale", 5},
		"BT.2020 without zscale": {colouredSource{"bt2020nc", "bt2020", "", "yuv420p12le", false}, none, "no zscale", 30},
		"P3 RGB without zscale":  {colouredSource{"gbr", "smpte432", "", "gbrp12le", true}, none, "no zscale", 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tools := fastTools
			tools.FFmpeg, tools.Cache = c.ffmpeg, nil
			_, warnings, rendition, _ := shown(t, tools, c.source.make(t, "bt709"))
			wantPatches(t, "rendition", rendition, patches, c.within)
			if len(warnings) != 1 || !strings.Contains(warnings[0], c.want) {
				t.Errorf("warnings %q; want %q", warnings, c.want)
			}
		})
	}
}
