package media

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// transcodeWith runs Transcode with fewer capabilities.
func transcodeWith(t *testing.T, src string, c capabilities) result {
	t.Helper()
	r := result{src: src, dir: t.TempDir()}
	var err error
	if r.info, err = fastTools.Probe(t.Context(), src); err != nil {
		t.Fatal(err)
	}
	video, audio := renditionJobs(r.info, Ladder(r.info))
	if err := createRenditionDirs(r.dir, slices.Concat(video, audio)); err != nil {
		t.Fatal(err)
	}
	plan := planTiming(r.info)
	said, err := fastTools.run(t.Context(), command{
		tool: "ffmpeg", args: fastTools.transcodeArgs(src, r.info, video, audio, plan, c, libx264, nil), dir: r.dir, source: src,
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.out, err = fastTools.collect(t.Context(), r.dir, r.info, video, audio, plan, c, said); err != nil {
		t.Fatal(err)
	}
	if err := fastTools.Check(t.Context(), r.info, r.dir, r.out); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTranscode_ApproximatesHDRWithoutZscale(t *testing.T) {
	t.Parallel()
	for hdr, transfer := range map[string]string{"pq": "smpte2084", "hlg": "arib-std-b67"} {
		src := makeClip(t, "a.mkv",
			"-f lavfi -i color=0x808080:s=320x240:r=10:d=1 -vf format=yuv420p10le,setparams=color_trc="+transfer+
				":color_primaries=bt2020:colorspace=bt2020nc -color_trc "+transfer+
				" -color_primaries bt2020 -colorspace bt2020nc"+h264)
		r := transcodeWith(t, src, capabilities{fpsMode: true})
		if r.info.Video.HDR != hdr || len(r.out.Warnings) != 1 || !strings.Contains(r.out.Warnings[0], "zscale") {
			t.Errorf("HDR %q, warnings %q", r.info.Video.HDR, r.out.Warnings)
		}
		wantSDR(t, filepath.Join(r.dir, r.out.Video[0].Playlist))
	}
}

// Before 5.1, ffmpeg had one option for all outputs. Newer versions still accept it.
func TestTranscode_WorksWithVsyncOption(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=320x240:r=30:d=1"+h264)
	r := transcodeWith(t, src, capabilities{})
	if r.out.Decoded != 30 || r.out.Expected != 30 {
		t.Errorf("output %+v; want 30 frames", r.out)
	}
}
