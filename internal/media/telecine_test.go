package media

import (
	"path/filepath"
	"testing"
)

const film = "-f lavfi -i testsrc2=s=640x480:r=24000/1001:d=6 "

func TestTranscode_FindsTheFramesOfATelecinedFilm(t *testing.T) {
	t.Parallel()
	original := makeClip(t, "film.mkv", film+"-vf scale=320:240:flags=bicubic -c:v libx264 -preset ultrafast -crf 10")
	for name, args := range map[string]string{
		"bottom.mkv": "-vf telecine=first_field=bottom:pattern=32 -c:v mpeg2video -flags +ilme+ildct -q:v 4 -pix_fmt yuv420p",
		"tape.mp4":   "-f lavfi -i sine=d=6 -vf telecine -c:v libx264 -preset ultrafast -x264-params interlaced=1:tff=1 -c:a aac",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := probed(t, makeClip(t, name, film+args))
			if !d.info.Video.Telecined {
				t.Fatalf("it is not detected: %+v", d.info.Video)
			}
			r := d.whole(t)
			if v := r.out.Video[0]; v.Frames < 143 || v.Frames > 144 || !isNear(v.FrameRate, filmRate, 0.01) {
				t.Errorf("%d frames, %.3f a second", v.Frames, v.FrameRate)
			}
			least, at := leastSimilarity(t, filepath.Join(r.dir, r.out.Video[0].Playlist), original)
			if least < 0.87 { // that of another frame is less
				t.Errorf("frame %d is not that of the film: %.3f", at, least)
			}
			delivered := deliver(t, r.dir, r.info, d.rungs)
			if _, err := deliveryTools.CheckDelivered(t.Context(), d.src, d.info, d.rungs, delivered, r.out); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestProbe_TakesNothingElseForATelecinedFilm(t *testing.T) {
	t.Parallel()
	const fields = "-f lavfi -i testsrc2=s=640x480:r=60000/1001:d=6 "
	const mpeg2 = " -c:v mpeg2video -flags +ilme+ildct -q:v 4 -pix_fmt yuv420p"
	for name, args := range map[string]string{
		"interlaced.mkv":    fields + "-vf interlace" + mpeg2,
		"progressive.mkv":   film + mpeg2,
		"soft.mkv":          film + "-c:v libx264 -preset ultrafast -x264-params pulldown=32",
		"repeated.mkv":      film + "-vf fps=30000/1001" + mpeg2,
		"euro.mkv":          "-f lavfi -i testsrc2=s=640x480:r=24:d=6 -vf telecine=pattern=222222222223" + mpeg2,
		"still.mkv":         "-f lavfi -i color=s=640x480:r=24000/1001:d=6 -vf telecine" + mpeg2,
		"film and video.ts": film + fields + "-lavfi [0]telecine,settb=1/120000[a];[1]interlace,settb=1/120000[b];[a][b]concat" + mpeg2,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			info, err := fastTools.Probe(t.Context(), makeClip(t, name, args))
			if err != nil {
				t.Fatal(err)
			}
			if info.Video.Telecined {
				t.Errorf("%+v", info.Video)
			}
		})
	}
}
