package media

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/encodertest"
)

// chunkKind is a kind of source, and whether it is divided.
type chunkKind struct {
	name, file, args string
	reason           string // of a plan without chunks
}

var chunkKinds = []chunkKind{
	{
		name: "29.97 frames a second", file: "a.mkv",
		args: small("30000/1001", 14) + "-c:v libx264 -preset veryfast -g 100",
	},
	{
		name: "59.94 frames a second", file: "a.mp4",
		args: small("60000/1001", 14) + "-c:v libx264 -preset veryfast -g 100",
	},
	{name: "120 frames a second", file: "a.mp4", args: small("120", 14) + "-c:v libx264 -preset ultrafast -g 200"},
	{
		name: "interlaced, top field first", file: "a.mkv", args: small("50", 14) +
			"-vf tinterlace=interleave_top,fieldorder=tff -flags +ildct+ilme -c:v mpeg2video -b:v 2M -g 40",
	},
	{
		name: "interlaced, 29.97 frames a second", file: "a.mov", args: small("60000/1001", 14) +
			"-vf tinterlace=interleave_bottom,fieldorder=bff -flags +ildct+ilme -c:v mpeg2video -b:v 2M -g 40",
	},
	{
		name: "irregular frames", file: "a.mkv", args: small("10", 20) + "-vf settb=1/1000,setpts='(N/10+0.04*sin(7*N))/TB' " +
			"-fps_mode passthrough -enc_time_base 1:1000 -c:v libx264 -preset veryfast -g 30",
	},
	{
		name: "pauses of 1.7 s", file: "a.mkv", args: small("10", 20) + "-vf settb=1/1000,setpts='(N/20+1.65*floor(N/27))/TB' " +
			"-fps_mode passthrough -enc_time_base 1:1000 -c:v libx264 -preset veryfast -g 30",
	},
	{
		name: "late start", file: "a.mkv",
		args: small("25", 14) + "-f lavfi -i sine=d=14 -output_ts_offset 5000 -c:v libx264 -preset veryfast -g 60 -c:a aac",
	},
	{
		name: "picture after sound", file: "a.mkv",
		args: "-itsoffset 0.6 " + small("25", 14) + "-f lavfi -i sine=d=15 -c:v libx264 -preset veryfast -g 60 -c:a aac",
	},
	{
		name: "sound after picture", file: "a.mp4",
		args: small("25", 14) + "-itsoffset 0.6 -f lavfi -i sine=d=14 -c:v libx264 -preset veryfast -g 60 -c:a aac",
	},
	{
		name: "HDR", file: "a.mkv", args: small("25", 14) +
			"-vf format=yuv420p10le,setparams=color_trc=smpte2084:color_primaries=bt2020:colorspace=bt2020nc " +
			"-color_trc smpte2084 -color_primaries bt2020 -colorspace bt2020nc -c:v libx264 -preset ultrafast -g 60",
	},
	{
		name: "open groups of pictures", file: "a.mp4",
		args: small("25", 14) + "-c:v libx264 -x264-params open-gop=1:keyint=40:bframes=8",
	},
	{name: "MPEG-2 with open groups of pictures", file: "a.mkv", args: small("25", 14) + "-c:v mpeg2video -bf 2 -g 30"},
	{
		name: "HEVC", file: "a.mp4",
		args: small("25", 14) + "-c:v libx265 -preset ultrafast -x265-params " +
			"log-level=error:keyint=60:bframes=4:open-gop=1",
	},
	{
		name: "slow periodic intra refresh", file: "a.mp4", reason: errWrongStart.Error(),
		args: "-f lavfi -i testsrc2=s=640x64:r=25:d=14 -c:v libx264 -x264-params intra-refresh=1:keyint=120",
	},
	{
		name: "periodic intra refresh", file: "a.mp4",
		args: small("25", 14) + "-c:v libx264 -x264-params intra-refresh=1:keyint=40",
	},
	{
		name: "MPEG-4 with B-frames in AVI", reason: "some of its packets have no timestamps", file: "a.avi",
		args: small("25", 14) + "-c:v mpeg4 -bf 2 -g 40",
	},
	{name: "MPEG-4 in AVI", file: "b.avi", args: small("25", 14) + "-c:v mpeg4 -g 40"},
	{
		name: "VP9", file: "a.webm",
		args: small("25", 14) + "-c:v libvpx-vp9 -auto-alt-ref 1 -lag-in-frames 16 -g 60 -deadline realtime " +
			"-cpu-used 8 -b:v 200k",
	},
	{
		name: "fragmented MP4", file: "a.mp4",
		args: small("25", 14) + "-c:v libx264 -preset veryfast -g 60 -movflags frag_keyframe+empty_moov",
	},
	{
		name: "one keyframe", reason: "its keyframes are too far apart", file: "a.mp4",
		args: small("25", 14) + "-c:v libx264 -preset veryfast -g 999",
	},
	{name: "H.264 without references", file: "a.mp4", args: small("25", 14) + "-c:v libx264 -preset veryfast -g 1"},
	{name: "only keyframes", file: "a.mov", args: small("25", 14) + "-c:v mjpeg -q:v 5"},
	{
		name: "transport stream", reason: "ffmpeg cannot seek exactly in its container \"mpegts\"", file: "a.ts",
		args: small("25", 14) + "-c:v libx264 -preset veryfast -g 60",
	},
	{
		name: "slide show", reason: "frames are repeated in it", file: "a.mkv",
		args: small("1", 8) + "-vf setpts=N*5/TB -fps_mode passthrough -enc_time_base 1:1000 -c:v libx264",
	},
	{
		name: "animated PNG", reason: "ffmpeg cannot seek exactly in its container \"apng\"", file: "a.png",
		args: small("5", 14) + "-plays 0 -f apng",
	},
}

func small(rate string, seconds int) string {
	return "-f lavfi -i testsrc2=s=96x64:r=" + rate + ":d=" + strconv.Itoa(seconds) + " "
}

func TestTranscodeChunk_IsExactAndAcceptedForEveryKindOfSource(t *testing.T) {
	t.Parallel()
	for _, k := range chunkKinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			d := probed(t, makeClip(t, k.file, k.args))
			if d.divide(t, 6*time.Second); d.plan.Reason != k.reason {
				t.Fatalf("reason %q; want %q", d.plan.Reason, k.reason)
			}
			if d.plan.Reason != "" {
				return
			}
			whole := d.whole(t)
			d.transcodePieces(t)
			d.join(t)
			d.wantSame(t, whole)
			d.wantPiecesAccepted(t)
		})
	}
}

// A decoder shows fewer frames of VP8 than it has packets.
func TestPlanChunks_DoesNotDivideHiddenFrames(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.webm")
	for _, pass := range []string{"1", "2"} {
		ffmpeg(t, append(fields(small("25", 14)+"-c:v libvpx -auto-alt-ref 1 -lag-in-frames 16 -g 250 -deadline good -cpu-used 5 "+
			"-b:v 50k -pass "+pass+" -passlogfile "+file+".log"), "file:"+file)...)
	}
	d := probed(t, file)
	if packets := d.info.Video.Frames; packets <= 14*25 {
		t.Fatalf("%d packets; want some hidden frames in addition", packets)
	}
	if d.divide(t, 6*time.Second); d.plan.Reason == "" {
		t.Errorf("it is divided into %d chunks", len(d.plan.Chunks))
	}
}

func TestPlanChunks_DoesNotDivideASourceThatHasChanged(t *testing.T) {
	t.Parallel()
	d := probed(t, makeClip(t, "a.mkv", small("25", 14)+"-c:v libx264 -preset veryfast -g 60"))
	d.info.Video.Frames--
	if d.divide(t, 6*time.Second); !strings.Contains(d.plan.Reason, "changed") {
		t.Errorf("%d chunks, reason %q", len(d.plan.Chunks), d.plan.Reason)
	}
}

func TestPlanChunks_DoesNotDivideForAHardwareEncoder(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.mkv", "-f lavfi -i testsrc2=s=320x240:r=25:d=14 -c:v libx264 -preset veryfast -g 60")
	tools := hardwareTools(encodertest.New(t), "hardware")
	info, packets, err := tools.ProbePackets(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := tools.PlanChunks(t.Context(), src, info, packets, Ladder(info), ChunkOptions{Length: 6 * time.Second})
	if err != nil || len(plan.Chunks) > 0 || !strings.Contains(plan.Reason, "h264_nvenc") {
		t.Errorf("%+v, %v; want the encoder as the reason", plan, err)
	}
}

func TestPlanChunks_DividesOnlyFromTwoChunksOn(t *testing.T) {
	t.Parallel()
	d := probed(t, makeClip(t, "a.mkv", small("25", 20)+"-c:v libx264 -preset veryfast -g 60"))
	for _, c := range []struct {
		o      ChunkOptions
		chunks int
	}{
		{ChunkOptions{}, 0}, {ChunkOptions{Length: 6 * time.Second}, 4}, {ChunkOptions{Length: 8 * time.Second}, 4},
		{ChunkOptions{Length: 10 * time.Second}, 0}, {ChunkOptions{Length: 6 * time.Second, MinDuration: time.Minute}, 0},
	} {
		plan, err := chunkTools.PlanChunks(t.Context(), d.src, d.info, d.packets, d.rungs, c.o)
		if err != nil || len(plan.Chunks) != c.chunks || (plan.Reason == "") != (c.chunks > 0) {
			t.Errorf("%+v: %d chunks, %q, %v; want %d", c.o, len(plan.Chunks), plan.Reason, err, c.chunks)
		}
	}
}

func TestChunkOptions_MakeAtMostAThousandChunks(t *testing.T) {
	for duration, want := range map[float64]int{60: 5, 8 * 3600: 5, 12 * 3600: 8, 168 * 3600: 101} {
		if got := (ChunkOptions{}).segments(duration); got != want {
			t.Errorf("a chunk of %v h has %d segments; want %d", duration/3600, got, want)
		}
	}
}
