package media

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the expected argument lists")

// argumentLists are the arguments of transcodes of a film with sound and of slides, one argument a line.
func argumentLists(e videoEncoder, d *device) string {
	found := capabilities{fpsMode: true, zscale: true, sidedata: true, bwdif: true, forcesAV1: true}
	for _, second := range hevcAV1Encoders {
		found.encoders = append(found.encoders, second.name)
	}
	film := &Info{
		Duration: 10, Container: "matroska", Codecs: []string{"h264", "aac"},
		Video: &Video{
			Codec: "h264", CodedWidth: 640, CodedHeight: 360, Width: 640, Height: 360, SAR: 1, FPS: 25, MinGap: 0.04,
			Frames: 250, MaxGap: 0.04, Duration: 10, PixelFormat: "yuv420p",
		},
		Audio: []Audio{{Index: 1, Channels: 2, Layout: "stereo", Duration: 10}},
	}
	slides := &Info{
		Duration: 60, Container: "matroska", Codecs: []string{"h264"},
		Video: &Video{
			Codec: "h264", CodedWidth: 320, CodedHeight: 240, Width: 320, Height: 240, SAR: 1, FPS: 0.1, MinGap: 10,
			Frames: 6, MaxGap: 10, Duration: 60, PixelFormat: "yuvj420p", FullRange: true,
		},
	}
	large := *film
	largeVideo := *film.Video
	large.Video, large.Audio = &largeVideo, nil
	large.Video.Width, large.Video.Height, large.Video.CodedWidth, large.Video.CodedHeight = 1280, 720, 1280, 720
	var b strings.Builder
	for _, c := range []struct {
		title  string
		tools  Tools
		info   *Info
		ladder LadderOptions
	}{
		{"a film with sound", Tools{}, film, LadderOptions{}},
		{"slides, with the preset slow and two threads", Tools{Preset: "slow", CRF: 20, Threads: 2}, slides, LadderOptions{}},
		{"a film in HEVC and AV1, too, with two threads", Tools{Threads: 2}, &large, LadderOptions{Heights: []int{720}, Codecs: LadderCodecs()}},
	} {
		video, audio := renditionJobs(c.info, LadderWith(c.info, c.ladder))
		args := c.tools.transcodeArgs("/source.mkv", c.info, video, audio, planTiming(c.info), found, e, d)
		b.WriteString("# " + c.title + "\n" + strings.Join(args, "\n") + "\n")
	}
	return b.String()
}

func TestTranscode_GivesEachEncoderItsArguments(t *testing.T) {
	t.Parallel()
	for _, e := range append([]videoEncoder{libx264}, hardwareEncoders...) {
		file := filepath.Join("testdata/transcode_args", e.name+".txt")
		var d *device
		if e.isHardware() {
			d = &device{kind: e.device, nodes: []string{"/dev/dri/renderD129"}}
		}
		got := argumentLists(e, d)
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
			t.Errorf("%s; if the change is meant, run go test ./internal/media -run Arguments -update:\n%s", e.name, diff)
		}
	}
}

// Without a device, ffmpeg gets as far as opening it. It has accepted all options by then.
func TestHardwareEncoders_HaveOnlyOptionsThatFFmpegKnows(t *testing.T) {
	t.Parallel()
	_, installed, err := Tools{}.codecs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range slices.Concat(hardwareEncoders, hevcAV1Encoders) {
		if !e.isHardware() || !slices.Contains(installed, e.name) {
			continue
		}
		args := e.args(Tools{}.encoderSettings(Rung{VideoBitrate: 800_000}, "3.1"))
		args = append(append([]string{"-f", "lavfi", "-i", "testsrc2=s=320x240:d=0.2"}, args...), "-f", "null", "-")
		out, err := Tools{}.run(t.Context(), command{
			tool: "ffmpeg", args: append(Tools{}.ffmpegArgs(), args...), noProgress: true,
		})
		if err == nil {
			continue // there is a device
		}
		for _, complaint := range []string{"Unrecognized option", "Unable to parse", "Error setting option", "has not been used", "Undefined"} {
			if strings.Contains(out.tail, complaint) {
				t.Errorf("%s: %s", e.name, out.tail)
			}
		}
	}
}

func TestParseEncoders(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		"":                               "libx264",
		"libx264":                        "libx264",
		"h264_vaapi,h264_nvenc":          "h264_vaapi,h264_nvenc,libx264",
		"hardware":                       "h264_nvenc,h264_qsv,h264_vaapi,libx264",
		"h264_vaapi,hardware":            "h264_vaapi,h264_nvenc,h264_qsv,libx264",
		"h264_qsv,libx264,h264_nvenc":    "h264_qsv,libx264",
		"h264_qsv,h264_qsv,libx264":      "h264_qsv,libx264",
		"h264_nvenc,h264_amf":            `unknown encoder "h264_amf"; allowed: libx264, h264_nvenc, h264_qsv, h264_vaapi, hardware`,
		"h264_nvenc,hevc_nvenc,hardware": `unknown encoder "hevc_nvenc"; allowed: libx264, h264_nvenc, h264_qsv, h264_vaapi, hardware`,
	} {
		got, err := ParseEncoders(strings.FieldsFunc(list, func(r rune) bool { return r == ',' }))
		text := strings.Join(got, ",")
		if err != nil {
			text = err.Error()
		}
		if text != want {
			t.Errorf("%q: got %s; want %s", list, text, want)
		}
	}
}
