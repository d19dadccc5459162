package media

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	h264 = " -c:v libx264 -preset ultrafast "
	tone = " -f lavfi -i sine=r=44100:d=1 "
)

// sourceKind is a kind of source that cameras, editors and archives produce.
type sourceKind struct {
	name, file, args string
	rungs            string // as Ladder returns them
	want             func(t *testing.T, r result)
}

func TestTranscode_CompletesEveryKindOfSource(t *testing.T) {
	t.Parallel()
	kinds := append(append(pictureKinds(), timingKinds()...), streamKinds()...)
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			r := publish(t, makeClip(t, k.file, k.args))
			r.wantAccepted(t)
			if got := names(Ladder(r.info)); got != k.rungs {
				t.Errorf("rungs %s; want %s", got, k.rungs)
			}
			if k.want != nil {
				k.want(t, r)
			}
		})
	}
}

func pictureKinds() []sourceKind {
	return []sourceKind{
		{
			name: "plain", file: "a.mp4", rungs: "360p=640x360 240p=426x240 audio",
			args: "-f lavfi -i testsrc2=s=640x360:r=25:d=1 " + tone + h264 + " -c:a aac",
			want: func(t *testing.T, r result) {
				v := r.info.Video
				if v.Codec != "h264" || v.Frames != 25 || !isNear(v.FPS, 25, 0.01) || v.Interlaced || v.Keyframes != 1 {
					t.Errorf("video %+v", v)
				}
				if r.out.Decoded != 25 || r.out.Expected != 25 || r.out.DecodeErrors != 0 || len(r.out.Warnings) != 0 {
					t.Errorf("output %+v", r.out)
				}
				if f := r.out.Video[0].FrameRate; f != 25 {
					t.Errorf("frame rate %v; want 25", f)
				}
			},
		},
		{
			name: "anamorphic", file: "a.mp4", rungs: "240p=480x240",
			args: "-f lavfi -i testsrc2=s=240x240:r=10:d=1,setsar=2 " + h264,
			want: func(t *testing.T, r result) {
				if v := r.info.Video; v.CodedWidth != 240 || v.Width != 480 || v.Height != 240 || v.SAR != 2 {
					t.Errorf("video %+v", v)
				}
			},
		},
		{
			name: "interlaced", file: "a.mpg", rungs: "240p=320x240",
			args: "-f lavfi -i testsrc2=s=320x240:r=50:d=1 -vf tinterlace=interleave_top,fieldorder=tff -flags +ildct+ilme " +
				"-c:v mpeg2video -b:v 2M",
			want: func(t *testing.T, r result) {
				if !r.info.Video.Interlaced || !r.info.Video.TopFirst {
					t.Errorf("video %+v is not seen as interlaced, top field first", r.info.Video)
				}
				if v := r.out.Video[0]; v.Frames != 2*r.out.Decoded || v.FrameRate != 50 {
					t.Errorf("%d frames at %v a second of %d; want one of each field", v.Frames, v.FrameRate, r.out.Decoded)
				}
			},
		},
		{
			name: "progressive, but flagged interlaced", file: "a.mpg", rungs: "240p=320x240",
			args: "-f lavfi -i testsrc2=s=80x60:r=25:d=1,scale=320:240,gblur=4 -flags +ildct+ilme -c:v mpeg2video -b:v 2M",
			want: func(t *testing.T, r result) {
				if r.info.Video.Interlaced {
					t.Errorf("video %+v is seen as interlaced", r.info.Video)
				}
			},
		},
		{
			name: "10 bit 4:4:4", file: "a.mkv", rungs: "240p=320x240",
			args: "-f lavfi -i testsrc2=s=320x240:r=10:d=1 -pix_fmt yuv444p10le" + h264,
		},
		{
			name: "HDR PQ", file: "a.mkv", rungs: "240p=320x240",
			args: "-f lavfi -i color=0x808080:s=320x240:r=10:d=1 " +
				"-vf format=yuv420p10le,setparams=color_trc=smpte2084:color_primaries=bt2020:colorspace=bt2020nc " +
				"-color_trc smpte2084 -color_primaries bt2020 -colorspace bt2020nc" + h264,
			want: func(t *testing.T, r result) {
				if r.info.Video.HDR != "pq" {
					t.Errorf("HDR %q; want pq", r.info.Video.HDR)
				}
				wantSDR(t, filepath.Join(r.dir, r.out.Video[0].Playlist))
			},
		},
		{
			name: "HDR HLG", file: "a.mkv", rungs: "240p=320x240",
			args: "-f lavfi -i color=0x808080:s=320x240:r=10:d=1 " +
				"-vf format=yuv420p10le,setparams=color_trc=arib-std-b67:color_primaries=bt2020:colorspace=bt2020nc " +
				"-color_trc arib-std-b67 -color_primaries bt2020 -colorspace bt2020nc" + h264,
			want: func(t *testing.T, r result) {
				if r.info.Video.HDR != "hlg" {
					t.Errorf("HDR %q; want hlg", r.info.Video.HDR)
				}
				wantSDR(t, filepath.Join(r.dir, r.out.Video[0].Playlist))
			},
		},
		{
			name: "transparent white", file: "a.mkv", rungs: "240p=320x240",
			args: "-f lavfi -i color=white@0.0:s=320x240:r=10:d=1,format=bgra -c:v ffv1",
			want: func(t *testing.T, r result) {
				got := corners(t, filepath.Join(r.dir, r.out.Video[0].Playlist))
				if got != [4]string{"black", "black", "black", "black"} {
					t.Errorf("corners %v; want all black", got)
				}
			},
		},
		{
			name: "transparent VP9", file: "a.webm", rungs: "240p=320x240",
			args: "-f lavfi -i color=white@0.0:s=320x240:r=10:d=1,format=yuva420p -c:v libvpx-vp9 -deadline realtime " +
				"-auto-alt-ref 0",
			want: func(t *testing.T, r result) {
				got := corners(t, filepath.Join(r.dir, r.out.Video[0].Playlist))
				if got != [4]string{"black", "black", "black", "black"} {
					t.Errorf("corners %v; want all black", got)
				}
			},
		},
		{
			name: "RGB", file: "a.mkv", rungs: "240p=320x240",
			args: "-f lavfi -i " + quarters(320, 240) + ",format=gbrp -c:v ffv1",
			want: func(t *testing.T, r result) {
				if got := corners(t, filepath.Join(r.dir, r.out.Video[0].Playlist)); got != [4]string{"r", "g", "b", "rgb"} {
					t.Errorf("corners %v", got)
				}
			},
		},
		{
			name: "full range", file: "a.mp4", rungs: "240p=320x240",
			args: "-f lavfi -i color=white:s=320x240:r=10:d=1 -vf scale=out_range=pc,format=yuvj420p -color_range pc" + h264,
			want: func(t *testing.T, r result) {
				if !r.info.Video.FullRange {
					t.Errorf("video %+v is not seen as full range", r.info.Video)
				}
				luma := ffmpeg(t, "-i", filepath.Join(r.dir, r.out.Video[0].Playlist), "-frames:v", "1", "-pix_fmt", "yuv420p",
					"-f", "rawvideo", "-")
				if luma[0] < 230 || luma[0] > 237 {
					t.Errorf("white has luma %d; want 235", luma[0])
				}
			},
		},
		{
			name: "animated PNG", file: "a.png", rungs: "240p=320x240",
			args: "-f lavfi -i testsrc2=s=320x240:r=5:d=2 -plays 0 -f apng",
			want: func(t *testing.T, r result) {
				if v := r.out.Video[0]; v.Frames != 10 || !isNear(v.Duration, 2, 0.1) {
					t.Errorf("%d frames in %.3f s; want 10 in 2 s, once", v.Frames, v.Duration)
				}
			},
		},
		{
			name: "odd size", file: "a.mkv", rungs: "56p=100x56",
			args: "-f lavfi -i testsrc2=s=101x57:r=10:d=1 -pix_fmt yuv444p -c:v ffv1",
		},
		{
			name: "one pixel", file: "a.mkv", rungs: "2p=2x2",
			args: "-f lavfi -i color=red:s=2x2:r=10:d=1,format=yuv444p,scale=1:1 -c:v ffv1",
		},
		{name: "very tall", file: "a.mkv", rungs: "16p=16x2000", args: "-f lavfi -i testsrc2=s=16x2000:r=5:d=1 -c:v ffv1"},
		{
			name: "nearly 360p", file: "a.mp4", rungs: "360p=638x358 240p=428x240",
			args: "-f lavfi -i testsrc2=s=638x358:r=10:d=1" + h264,
		},
	}
}

func timingKinds() []sourceKind {
	return []sourceKind{
		{
			name: "variable frame rate", file: "a.mkv", rungs: "240p=320x240",
			args: "-f lavfi -i testsrc2=s=320x240:r=30:d=1 -vf setpts='if(lt(N\\,15)\\,N/30\\,0.5+(N-15)/7)/TB' " +
				"-fps_mode passthrough -enc_time_base 1:1000" +
				h264,
			want: func(t *testing.T, r result) {
				if r.out.Expected != 30 || r.out.Constant {
					t.Errorf("output %+v; want the 30 frames as they are", r.out)
				}
			},
		},
		{
			name: "slide show", file: "a.mkv", rungs: "240p=320x240",
			args: "-f lavfi -i testsrc2=s=320x240:r=1:d=4 -vf setpts=N*5/TB -fps_mode passthrough -enc_time_base 1:1000" + h264,
			want: func(t *testing.T, r result) {
				// One every two seconds, and the slides at 5 and 15 s.
				v, length := r.out.Video[0], r.info.Duration
				want := int64(math.Ceil((length-minTailSeconds)/2)) + 2
				if !r.out.Constant || v.Frames != want || !isNear(v.Duration, length, 0.001) {
					t.Errorf("%d frames in %.3f s; want %d in %.3f", v.Frames, v.Duration, want, length)
				}
				wantFrameAt(t, filepath.Join(r.dir, v.Playlist), 5, 15)
			},
		},
		{
			name: "slides at odd times", file: "a.mkv", rungs: "240p=320x240",
			args: "-f lavfi -i testsrc2=s=320x240:r=1:d=6 -vf settb=1/1000,setpts=N*5.3/TB -fps_mode passthrough " +
				"-enc_time_base 1:1000" +
				h264,
			want: func(t *testing.T, r result) {
				wantFrameAt(t, filepath.Join(r.dir, r.out.Video[0].Playlist), 5.3, 6, 10.6, 12, 18, 21.2, 24, 26.5)
			},
		},
		{
			name: "still picture with a song", file: "a.mp4", rungs: "240p=320x240 audio",
			args: "-f lavfi -i testsrc2=s=320x240:r=1:d=1 -f lavfi -i sine=d=9" + h264 + "-c:a aac",
			want: func(t *testing.T, r result) {
				if v, a := r.out.Video[0], r.out.Audio[0]; !isNear(v.Duration, 9, 0.2) || !isNear(a.Duration, 9, 0.2) {
					t.Errorf("picture for %.2f s, sound for %.2f s; want 9", v.Duration, a.Duration)
				}
			},
		},
		{
			name: "one frame with a song", file: "a.ts", rungs: "240p=320x240 audio",
			args: "-f lavfi -i testsrc2=s=320x240:r=25:d=0.04 -f lavfi -i sine=d=6" + h264 + "-c:a aac",
			want: func(t *testing.T, r result) {
				v, a := r.out.Video[0], r.out.Audio[0]
				if v.Frames != 3 || !isNear(v.Duration, 6, 0.05) || !isNear(a.Duration, 6, 0.05) {
					t.Errorf("%d frames in %.2f s, sound for %.2f s; want 3 in 6 s", v.Frames, v.Duration, a.Duration)
				}
			},
		},
		{
			name: "one frame with a song that ends alone in its segment", file: "a.mkv", rungs: "240p=320x240 audio",
			args: "-f lavfi -i testsrc2=s=320x240:r=25:d=0.04 -f lavfi -i sine=d=6.7" + h264 + "-c:a pcm_s16le",
			want: func(t *testing.T, r result) {
				if v := r.out.Video[0]; v.Frames != 4 || v.Segments != 2 || !isNear(v.Duration, 6.7, 0.002) {
					t.Errorf("%d frames in %d segments of %.3f s; want 4 in 2 of 6.7 s", v.Frames, v.Segments, v.Duration)
				}
			},
		},
		{
			name: "short picture with two songs, one shorter", file: "a.mkv", rungs: "240p=320x240 audio",
			args: "-f lavfi -i testsrc2=s=320x240:r=10:d=10 -f lavfi -i sine=d=30 -f lavfi -i sine=d=20 -map 0 -map 1 -map 2" +
				h264 + "-c:a aac",
			want: func(t *testing.T, r result) {
				v, a := r.out.Video[0], r.out.Audio
				if len(a) != 2 || !isNear(v.Duration, 30, 0.1) || !isNear(a[0].Duration, 30, 0.1) ||
					!isNear(a[1].Duration, 20, 0.1) {
					t.Errorf("picture for %.2f s, sound %+v; want 30 s, and 30 and 20 s", v.Duration, a)
				}
			},
		},
		{
			name: "film with a pause", file: "a.mkv", rungs: "240p=320x240",
			args: "-f lavfi -i testsrc2=s=320x240:r=50:d=2 -vf setpts='(N+0.5+if(gte(N\\,50)\\,251))/50/TB' " +
				"-fps_mode passthrough -enc_time_base 1:1000" +
				h264,
			want: func(t *testing.T, r result) {
				// The pause has repeated frames at 2, 4 and 6 s.
				if v := r.out.Video[0]; v.Frames != 103 || !isNear(v.Duration, 7.02, 0.1) {
					t.Errorf("%d frames in %.3f s; want all 100 and 3 more in 7.02 s", v.Frames, v.Duration)
				}
			},
		},
		{
			name: "120 frames a second", file: "a.mp4", rungs: "240p=320x240",
			args: "-f lavfi -i testsrc2=s=320x240:r=120:d=1" + h264,
			want: func(t *testing.T, r result) {
				if r.out.Decoded != 120 || r.out.Expected != 60 || r.out.Video[0].FrameRate != 60 {
					t.Errorf("output %+v; want every other frame", r.out)
				}
				if w := strings.Join(r.info.Warnings, "; "); !strings.Contains(w, "up to 120 a second") {
					t.Errorf("warnings %q; want one about the frames left out", w)
				}
			},
		},
		{
			name: "23.976 frames a second", file: "a.mp4", rungs: "240p=320x240",
			args: "-f lavfi -i testsrc2=s=320x240:r=24000/1001:d=7" + h264,
			want: func(t *testing.T, r result) {
				text, err := os.ReadFile(filepath.Join(r.dir, MasterName))
				if err != nil || !strings.Contains(string(text), "FRAME-RATE=23.976") {
					t.Errorf("%v\n%s", err, text)
				}
			},
		},
		{
			name: "late start", file: "a.ts", rungs: "240p=320x240 audio",
			args: "-f lavfi -i testsrc2=s=320x240:r=25:d=1" + tone + h264 + "-c:a aac -output_ts_offset 5000",
			want: func(t *testing.T, r result) {
				if r.info.Start < 5000 || !isNear(r.info.Duration, 1, 0.1) || !isNear(r.out.Duration, 1, 0.1) {
					t.Errorf("start %v, duration %v, out %v", r.info.Start, r.info.Duration, r.out.Duration)
				}
			},
		},
		{
			name: "picture after sound", file: "a.mkv", rungs: "240p=320x240 audio",
			args: "-itsoffset 0.6 -f lavfi -i testsrc2=s=320x240:r=10:d=1" + tone + h264 + "-c:a aac",
			want: func(t *testing.T, r result) {
				if v := r.out.Video[0]; v.Frames != 10 || !isNear(v.Duration, 1.6, 0.05) {
					t.Errorf("%d frames in %.2f s; want the first of 10 to start with the sound", v.Frames, v.Duration)
				}
			},
		},
		{
			name: "raw stream without timestamps", file: "a.h264", rungs: "240p=320x240",
			args: "-f lavfi -i testsrc2=s=320x240:r=25:d=1" + h264,
		},
	}
}

func streamKinds() []sourceKind {
	return []sourceKind{
		{
			name: "recording of Windows Media Center", file: "a.wtv", rungs: "240p=320x240 audio",
			args: "-f lavfi -i testsrc2=s=320x240:r=25:d=2 -f lavfi -i sine=d=2 -c:v mpeg2video -c:a mp2",
			want: func(t *testing.T, r result) {
				if r.out.Decoded != 50 || !isNear(r.out.Video[0].Duration, 2, 0.1) || !isNear(r.out.Audio[0].Duration, 2, 0.1) {
					t.Errorf("output %+v; want 50 frames and sound of 2 s", r.out)
				}
			},
		},
		{
			name: "bare JPEGs", file: "a.mp4", rungs: "240p=320x240", args: "-f lavfi -i testsrc2=s=320x240:r=25:d=1 -f mjpeg",
			want: func(t *testing.T, r result) {
				if r.out.Decoded != 25 || !isNear(r.out.Video[0].Duration, 1, 0.05) {
					t.Errorf("output %+v; want 25 frames in 1 s", r.out)
				}
			},
		},
		{name: "Creative voice", file: "a.voc", rungs: "audio audio-low", args: tone},
		{name: "no sound", file: "a.avi", rungs: "240p=320x240", args: "-f lavfi -i testsrc2=s=320x240:r=10:d=1 -c:v mpeg4"},
		{name: "sound only", file: "a.wav", rungs: "audio audio-low", args: tone},
		{
			name: "song with cover", file: "a.mp3", rungs: "audio audio-low",
			args: tone +
				"-f lavfi -i testsrc2=s=64x64:d=0.1:r=10 -map 0 -map 1 -c:v mjpeg -pix_fmt yuvj420p " +
				"-disposition:v attached_pic -c:a libmp3lame",
			want: func(t *testing.T, r result) {
				if r.info.Video != nil || r.info.Cover != 1 {
					t.Errorf("info %+v; want a cover and no video", r.info)
				}
			},
		},
		{
			name: "two languages", file: "a.mkv", rungs: "240p=320x240 audio",
			args: "-f lavfi -i testsrc2=s=320x240:r=10:d=1" + tone + tone +
				"-map 0 -map 1 -map 2 -metadata:s:a:0 language=ger -metadata:s:a:1 language=eng -disposition:a:0 0 " +
				"-disposition:a:1 default" +
				h264 + "-c:a aac",
			want: func(t *testing.T, r result) {
				if len(r.out.Audio) != 2 || !r.out.Audio[0].Default || r.out.Audio[0].Language != "eng" ||
					r.out.Audio[1].Language != "ger" {
					t.Errorf("audio %+v", r.out.Audio)
				}
			},
		},
		{
			name: "six channels", file: "a.mkv", rungs: "audio audio-low",
			args: "-f lavfi -i sine=d=1 -af pan=5.1|c0=c0|c1=c0|c2=c0|c3=c0|c4=c0|c5=c0 -c:a ac3",
			want: func(t *testing.T, r result) {
				if r.info.Audio[0].Channels != 6 || r.out.Audio[0].Channels != 2 {
					t.Errorf("channels %d and %d", r.info.Audio[0].Channels, r.out.Audio[0].Channels)
				}
			},
		},
		{
			name: "sound shorter than picture", file: "a.mp4", rungs: "240p=320x240 audio",
			args: "-f lavfi -i testsrc2=s=320x240:r=10:d=3" + tone + h264 + "-c:a aac",
			want: func(t *testing.T, r result) {
				if d := r.out.Audio[0].Duration; !isNear(d, 3, 0.1) {
					t.Errorf("sound for %.2f s; want 3", d)
				}
			},
		},
		{
			name: "time code track", file: "a.mov", rungs: "240p=320x240",
			args: "-f lavfi -i testsrc2=s=320x240:r=25:d=1 -timecode 01:00:00:00" + h264,
		},
		{
			name: "two pictures", file: "a.mkv", rungs: "240p=320x240",
			args: "-f lavfi -i testsrc2=s=64x64:r=25:d=1 -f lavfi -i testsrc2=s=320x240:r=25:d=1 -map 0 -map 1 " +
				"-disposition:v 0" + h264,
			want: func(t *testing.T, r result) {
				if r.info.Video.Index != 1 {
					t.Errorf("stream %d was chosen; want the larger one", r.info.Video.Index)
				}
			},
		},
		{
			name: "text subtitles", file: "a.mkv", rungs: "240p=320x240",
			args: "-f lavfi -i testsrc2=s=320x240:r=10:d=1 -f srt " +
				"-i 'data:,1%0A00:00:00,000%20-->%2000:00:01,000%0Ahello%0A' -map 0 -map 1 -metadata:s:s:0 language=fre" +
				h264 + "-c:s srt",
			want: func(t *testing.T, r result) {
				if s := r.info.Subtitles; len(s) != 1 || s[0].Codec != "subrip" || s[0].Language != "fre" {
					t.Errorf("subtitles %+v", s)
				}
			},
		},
	}
}

// wantFrameAt requires frames that start at the given times, in seconds.
func wantFrameAt(t *testing.T, file string, times ...float64) {
	t.Helper()
	out := string(tool(t, "ffprobe", "-loglevel", "error", "-select_streams", "v:0", "-show_entries", "packet=pts_time",
		"-of", "csv=p=0", file))
	for _, at := range times {
		if !strings.Contains(out, fmt.Sprintf("%.6f", at)) {
			t.Errorf("no frame begins at %v s, but at %q", at, out)
		}
	}
}

// wantSDR requires that the output is tagged BT.709 and that mid grey of HDR, which
// is bright, is neither black nor white.
func wantSDR(t *testing.T, file string) {
	t.Helper()
	tags := string(tool(t, "ffprobe", "-loglevel", "error", "-select_streams", "v:0", "-show_entries",
		"stream=pix_fmt,color_range,color_space,color_transfer,color_primaries", "-of", "default=nw=1:nk=1", file))
	if first := strings.Fields(tags); len(first) < 5 || strings.Join(first[:5], " ") != "yuv420p tv bt709 bt709 bt709" {
		t.Errorf("it is tagged %q", tags)
	}
	luma := ffmpeg(t, "-i", file, "-frames:v", "1", "-pix_fmt", "yuv420p", "-f", "rawvideo", "-")
	if luma[0] < 60 || luma[0] > 220 {
		t.Errorf("mid grey has luma %d", luma[0])
	}
}
