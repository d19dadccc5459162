package media

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cuelight/cuelight/internal/browsertest"
)

// furtherCodecs are the codecs of further renditions that this ffmpeg encodes.
func furtherCodecs(t *testing.T) []string {
	t.Helper()
	_, installed, err := Tools{}.codecs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(LadderCodecs(), func(codec string) bool {
		return !slices.Contains(installed, libx264.encoderOf(Rung{Codec: codec}, capabilities{}).name)
	})
}

func withCodecs(t *testing.T, heights ...int) LadderOptions {
	t.Helper()
	return LadderOptions{Heights: heights, Codecs: furtherCodecs(t), Preset: "superfast", Quality: 40}
}

func TestTranscode_MakesFurtherCodecsWithTheSegmentsOfH264(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "source.mp4", "-f lavfi -i testsrc=s=720x720:r=24000/1001:d=6.5 -pix_fmt yuv420p -c:v libx264 -preset ultrafast")
	r := publishLadder(t, fastTools, src, withCodecs(t, 720, 240))
	var names []string
	for _, v := range r.out.Video {
		s, err := Tools{}.inspect(t.Context(), r.dir, v.Playlist)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, v.Name+" "+v.Codecs)
		if s.segments[0].frames != 144 {
			t.Errorf("the first segment of %s has %d frames; want 144, the first number that lasts six seconds", v.Name, s.segments[0].frames)
		}
	}
	want := []string{"720p avc1.64001f", "720p-hevc hvc1.1.6.L90.90", "720p-av1 av01.0.04M.08", "240p avc1.64000c"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	browsertest.Require(t).Play(t, map[string]browsertest.Video{"av1": {Dir: r.dir, Length: 6500 * time.Millisecond, Codec: "av01"}},
		browsertest.PlayOptions{})
}

func TestJoinChunks_JoinsFurtherCodecs(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "source.mp4", "-f lavfi -i testsrc=s=720x720:r=10:d=13 -pix_fmt yuv420p -c:v libx264 -preset ultrafast -g 20")
	d := probed(t, src)
	d.rungs = LadderWith(d.info, withCodecs(t, 720))
	d.divide(t, 6*time.Second)
	d.transcodePieces(t)
	d.join(t)
}

// parametersOf encodes a frame, changes its parameters with a filter of ffmpeg, and reads them.
func parametersOf(t *testing.T, args string) (*pictureParameters, error) {
	t.Helper()
	if !strings.Contains(args, "-vf") {
		args = tagged("bt709", "bt709", "bt709") + args
	}
	frame := "-f lavfi -i testsrc2=s=64x64:r=25:d=0.04 "
	text := ffmpeg(t, fields(frame+args+" -video_track_timescale 120000 -f mp4 -movflags empty_moov+delay_moov -")...)
	var s renditionFiles
	err := s.parseInit(text)
	return s.picture, err
}

func TestReadVideoEntry_RefusesWhatPlayersWouldShowDifferently(t *testing.T) {
	t.Parallel()
	const x265 = "-c:v libx265 -preset ultrafast -tag:v hvc1 -x265-params log-level=error -pix_fmt "
	const svt = "-c:v libsvtav1 -preset 12 -pix_fmt "
	for _, c := range []struct{ args, word string }{
		{x265 + "yuv420p", ""},
		{x265 + "yuv420p10le", "profile"},
		{x265 + "yuv422p", "profile"},
		{x265 + "yuv420p -bsf:v hevc_metadata=sample_aspect_ratio=4/3", "square"},
		{x265 + "yuv420p -bsf:v hevc_metadata=transfer_characteristics=16", "colours"},
		{x265 + "yuv420p10le -bsf:v hevc_metadata=transfer_characteristics=16", "colours"},
		{x265 + "yuv420p10le" + tagged("bt2020", "smpte2084", "bt2020nc"), ""},
		{x265 + "yuv420p -bsf:v hevc_metadata=video_full_range_flag=1", "colours"},
		{strings.Replace(x265, "hvc1", "hev1", 1) + "yuv420p", "codec"},
		{svt + "yuv420p", ""},
		{svt + "yuv420p10le", "profile"},
		{svt + "yuv420p -bsf:v av1_metadata=transfer_characteristics=16", "colours"},
		{svt + "yuv420p10le" + tagged("bt2020", "smpte2084", "bt2020nc"), ""},
		{svt + "yuv420p -bsf:v av1_metadata=color_range=pc", "colours"},
	} {
		if codec := map[bool]string{true: "hevc", false: "av1"}[strings.Contains(c.args, "x265")]; !slices.Contains(furtherCodecs(t), codec) {
			continue
		}
		p, err := parametersOf(t, c.args)
		if c.word == "" && err != nil || c.word != "" && (err == nil || !strings.Contains(err.Error(), c.word)) {
			t.Errorf("%s: %+v, error %v; want one about %q", c.args, p, err, c.word)
		}
	}
}

// tagged are frames with the primaries, transfer and matrix of H.273, as an argument of ffmpeg.
func tagged(primaries, transfer, matrix string) string {
	return fmt.Sprintf(" -vf setparams=range=tv:color_primaries=%s:color_trc=%s:colorspace=%s ", primaries, transfer, matrix)
}

func TestTranscode_KeepsHDRNextToSDR(t *testing.T) {
	t.Parallel()
	if !slices.Contains(furtherCodecs(t), "hevc") {
		t.Skip("this ffmpeg has no libx265")
	}
	for transfer, name := range map[string]string{"smpte2084": "PQ", "arib-std-b67": "HLG"} {
		src := makeClip(t, "source.mp4", "-f lavfi -i testsrc=s=720x720:r=8:d=1 -pix_fmt yuv420p10le -c:v libx265 -preset ultrafast "+
			"-x265-params log-level=error:max-cll=900,300:master-display=G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,50)"+
			tagged("bt2020", transfer, "bt2020nc"))
		o := withCodecs(t, 720)
		o.HDR = true
		r := publishLadder(t, fastTools, src, o)
		for _, v := range r.out.Video {
			want := "yuv420p10le " + transfer + " " + name
			if v.Name == "720p" {
				want = "yuv420p bt709 SDR"
			}
			got := strings.Fields(string(tool(t, "ffprobe", "-v", "error", "-select_streams", "v", "-show_entries",
				"stream=pix_fmt,color_transfer", "-of", "default=nk=1:nw=1", filepath.Join(r.dir, v.Playlist))))
			static := string(tool(t, "ffprobe", "-v", "error", "-select_streams", "v", "-show_entries", "stream_side_data", "-of", "compact",
				filepath.Join(r.dir, v.Playlist)))
			hasStatic := strings.Contains(static, "red_x=34000/50000|") && strings.Contains(static, "blue_y=3000/50000|") &&
				strings.Contains(static, "max_luminance=10000000/10000") &&
				strings.Contains(static, "max_content=900") && strings.Contains(static, "max_average=300")
			if v.HDR != "hlg" && hasStatic != (v.HDR == "pq") {
				t.Errorf("%s of %s says of its display: %s", v.Name, transfer, static)
			}
			if text := strings.Join(append(got[:2], v.videoRange()), " "); text != want {
				t.Errorf("%s of %s is %s; want %s", v.Name, transfer, text, want)
			}
		}
		master, err := os.ReadFile(filepath.Join(r.dir, MasterName))
		if want := 2 * (len(r.out.Video) - 1); err != nil || strings.Count(string(master), "VIDEO-RANGE="+name) != want {
			t.Errorf("the playlist does not have %d variants with %s: %v\n%s", want, name, err, master)
		}
		manifest, err := os.ReadFile(filepath.Join(r.dir, ManifestName))
		if err != nil || strings.Count(string(manifest), "cicp:TransferCharacteristics") != len(r.out.Video)-1 {
			t.Errorf("the manifest does not name the transfer of each set with HDR: %v\n%s", err, manifest)
		}
	}
}

func TestCheckOBUs_FindsWhatIsNoFrame(t *testing.T) {
	t.Parallel()
	header := []byte{0x0a, 3, 1, 2, 3}
	s := renditionFiles{picture: &pictureParameters{codec: av1Codec}, parameters: [][]byte{header}}
	key, other := []byte{0x32, 2, 0b0001_0000, 9}, []byte{0x32, 2, 0b0011_0000, 9}
	for _, c := range []struct {
		data  []byte
		isKey bool
		want  string
	}{
		{slices.Concat(header, key), true, ""},
		{other, false, ""},
		{slices.Concat(other, other), false, ""},
		{nil, false, "no picture"},
		{header, true, "no picture"},
		{slices.Concat([]byte{0x0a, 3, 1, 2, 4}, key), true, "other parameters"},
		{other, true, "keyframe"},
		{key, false, "keyframe"},
		{key[:3], true, "fill"},
		{make([]byte, 8), true, "fill"},
		{[]byte{0x42, 1, 0}, true, "type 8"},
		{[]byte{0x32, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01}, true, "fill"},
	} {
		err := s.checkPicture(sample{isKey: c.isKey}, c.data)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%x: error %v; want one about %q", c.data, err, c.want)
		}
	}
}

func FuzzParameterSets(f *testing.F) {
	f.Add([]byte{0x0a, 0x0e, 0, 0, 0, 0x2d, 0x4c, 0xff, 0xb3, 0xc0, 0x2f, 0x81, 1, 1, 1, 4})
	f.Add([]byte{0x42, 1, 1, 1, 0x60, 0, 0, 3, 0, 0x90, 0, 0, 3, 0, 0, 3, 0, 0x5d, 0xa0, 2, 0x80, 0x80, 0x2d, 0x16, 0x59, 0x59})
	f.Fuzz(func(t *testing.T, data []byte) {
		hevc, _, _ := parseHEVC(data)
		av1, _ := parseAV1(data)
		for _, p := range []*pictureParameters{hevc, av1} {
			if p != nil && (p.width > maxEncodedSide || p.height > maxEncodedSide) {
				t.Errorf("%+v", p)
			}
		}
	})
}
