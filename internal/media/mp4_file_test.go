package media

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The sources have frames in another order than they are shown in, and last frames that stay longer than the others.
func TestWriteMP4_HasThePacketsOfTheRenditionsAtTheTimesOfHLS(t *testing.T) {
	t.Parallel()
	tools := fastTools
	tools.Preset = "veryfast" // the fastest one has no B-frames
	for name, source := range map[string]struct{ file, args string }{
		"NTSC, late sound": {"a.mkv", "-f lavfi -i testsrc2=s=320x240:r=30000/1001:d=7 -itsoffset 1.3 -f lavfi -i sine=d=7"},
		"at 98 s": {"a.ts", "-f lavfi -i testsrc2=s=320x240:r=25:d=8 -f lavfi -i sine=d=9 " +
			`-vf select='not(mod(n\,3))+lt(n\,50)' -vsync vfr -output_ts_offset 98`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src, dir := makeClip(t, source.file, source.args+" -c:v libx264 -preset veryfast -pix_fmt yuv420p -c:a aac"), t.TempDir()
			info, err := tools.Probe(t.Context(), src)
			if err != nil {
				t.Fatal(err)
			}
			out, err := tools.Transcode(t.Context(), src, info, LadderWith(info, LadderOptions{Heights: []int{240}}), dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			video, sound := packetsOf(t, filepath.Join(dir, out.Video[0].Playlist)), packetsOf(t, filepath.Join(dir, out.Audio[0].Playlist))
			if video[0].pts != 0 || video[0].dts >= 0 || sound[1].pts != 0 {
				t.Fatalf("HLS begins with %v and %v", video[:2], sound[:2])
			}
			if err := tools.WriteMP4(t.Context(), dir, out.MP4(720)); err != nil {
				t.Fatal(err)
			}
			wantMP4(t, filepath.Join(dir, MP4Name), []float64{out.Video[0].Duration, out.Audio[0].Duration}, video, sound)

			segment := packetsOf(t, filepath.Join(dir, out.Video[0].Playlist))
			at := slices.IndexFunc(segment, func(p mp4Packet) bool { return p.pts > 5.9 && p.key })
			for second, want := range map[float64][]mp4Packet{0: segment[:at], 6.5: segment[at:], 99: segment[at:]} {
				if err := tools.WriteMP4(t.Context(), dir, out.Preview(second)); err != nil {
					t.Fatal(err)
				}
				shown := out.Video[0].Duration - segment[at].pts
				if second == 0 {
					shown = 0 // unknown: the last frame may reach into the next segment
				}
				wantMP4(t, filepath.Join(dir, PreviewName), []float64{shown}, want)
			}
		})
	}
}

// mp4Packet is a packet as ffprobe reads it. Times are seconds.
type mp4Packet struct {
	pts, dts float64
	size     string
	key      bool
}

func packetsOf(t *testing.T, file string, options ...string) (list []mp4Packet) {
	t.Helper()
	args := append([]string{"-v", "error", "-show_entries", "packet=pts_time,dts_time,size,flags", "-of", "csv=p=0"}, options...)
	for line := range strings.Lines(string(tool(t, "ffprobe", append(args, file)...))) {
		f := strings.Split(strings.TrimSpace(line), ",")
		if len(f) < 4 {
			continue // side data
		}
		pts, err1 := strconv.ParseFloat(f[0], 64)
		dts, err2 := strconv.ParseFloat(f[1], 64)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		list = append(list, mp4Packet{pts, dts, f[2], strings.Contains(f[3], "K")})
	}
	return list
}

// wantMP4 checks a file that has these packets, moved to the time 0, per stream.
func wantMP4(t *testing.T, file string, durations []float64, streams ...[]mp4Packet) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	first, length, err1 := readBox(f, 0)
	second, _, err2 := readBox(f, length)
	if first != "ftyp" || second != "moov" {
		t.Errorf("it begins with %s, %s: %v", first, second, errors.Join(err1, err2))
	}
	lasts := strings.Fields(string(tool(t, "ffprobe", "-v", "error", "-show_entries", "stream=duration", "-of", "csv=p=0", file)))
	if len(lasts) != len(streams) {
		t.Fatalf("it has %d streams; want %d", len(lasts), len(streams))
	}
	for i, want := range streams {
		got := packetsOf(t, file, "-select_streams", strconv.Itoa(i))
		zero := max(want[0].pts, 0) // that of the sound is hidden
		same := slices.EqualFunc(got, want, func(g, w mp4Packet) bool {
			return isNear(g.pts, w.pts-zero, 2e-6) && isNear(g.dts, w.dts-zero, 2e-6) && g.size == w.size && g.key == w.key
		})
		if !same {
			t.Errorf("stream %d has %d packets, %v, …; want %d, %v, … from %v on", i, len(got), got[:2], len(want), want[:2], zero)
		}
		if shown, _ := strconv.ParseFloat(lasts[i], 64); durations[i] > 0 && !isNear(shown, durations[i], 1e-5) {
			t.Errorf("stream %d lasts %v s; want %v", i, shown, durations[i])
		}
	}
	if said := ffmpeg(t, "-xerror", "-i", file, "-map", "0", "-f", "null", "-"); len(said) > 0 {
		t.Errorf("ffmpeg plays it: %s", said)
	}
}

func TestWriteMP4_LeavesNoFileThatFFprobeDoesNotConfirm(t *testing.T) {
	t.Parallel()
	r := publish(t, makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=320x240:r=10:d=1"))
	before, _ := os.ReadDir(r.dir)
	for name, c := range map[string]struct {
		ffprobe string
		want    error
	}{
		"other packets": {"cat >/dev/null; echo \"stream_index=0|pts=$$|size=7|flags=K_\"", ErrMismatch},
		"no ffprobe":    {"exit 7", nil},
	} {
		tools := fastTools
		tools.FFprobe = script(t, c.ffprobe)
		err := tools.WriteMP4(t.Context(), r.dir, r.out.MP4(240))
		if err == nil || !strings.HasPrefix(err.Error(), "write video.mp4: ") || errors.Is(err, ErrMismatch) != (c.want != nil) {
			t.Errorf("%s: %v", name, err)
		}
		if after, _ := os.ReadDir(r.dir); len(after) != len(before) {
			t.Errorf("%s: it left %v", name, after)
		}
	}
}

func TestMP4_HasTheH264RenditionOfTheHeightOrBelow(t *testing.T) {
	t.Parallel()
	out := &Output{Video: []Rendition{
		{Name: "1080p-hevc", Codecs: "hvc1.1"}, {Name: "1080p", Codecs: "avc1.64"},
		{Name: "480p", Codecs: "avc1.64"}, {Name: "240p", Codecs: "avc1.64"},
	}, Audio: []Rendition{{Name: "surround", Channels: 6}, {Name: "stereo", Channels: 2}, {Name: "other", Channels: 2}}}
	for height, want := range map[int]string{4000: "1080p", 1080: "1080p", 720: "480p", 240: "240p", 100: "240p"} {
		if got := out.MP4(height).Renditions; len(got) != 2 || got[0].Name != want || got[1].Name != "stereo" {
			t.Errorf("%d: %v", height, got)
		}
	}
	if got := out.Preview(0).Renditions; len(got) != 1 || got[0].Name != "240p" {
		t.Errorf("the preview has %v", got)
	}
	for _, none := range []*Output{{Audio: out.Audio}, {Video: out.Video[:1], Audio: out.Audio}} {
		if got := append(none.MP4(4000).Renditions, none.Preview(0).Renditions...); len(got) > 0 {
			t.Errorf("without H.264: %v", got)
		}
	}
}
