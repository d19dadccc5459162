package media

import (
	"slices"
	"testing"
)

func TestRedundantHeights_FindsWhatWasEnlarged(t *testing.T) {
	t.Parallel()
	const h264 = " -pix_fmt yuv420p -c:v libx264 -preset ultrafast -crf 16 -g 2"
	for name, c := range map[string]struct {
		args string
		want []int
	}{
		"detailed": {"-f lavfi -i testsrc2=s=1280x720:r=4:d=4,noise=alls=20:allf=t" + h264, nil},
		"enlarged": {"-f lavfi -i testsrc2=s=640x360:r=4:d=4,scale=1920:1080:flags=bicubic" + h264, []int{1080}},
		"with a detailed part": {
			"-f lavfi -i testsrc2=s=640x360:r=4:d=3,scale=1280:720 -f lavfi -i testsrc2=s=1280x720:r=4:d=1,noise=alls=20 " +
				"-filter_complex concat" + h264, nil,
		},
		"small":  {"-f lavfi -i color=red:s=640x360:r=4:d=2" + h264, nil},
		"stream": {"-f lavfi -i color=red:s=1280x720:r=4:d=2" + h264 + " -f mpegts", nil}, // no index
	} {
		src := makeClip(t, "source.mp4", c.args)
		info, err := Tools{}.Probe(t.Context(), src)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Tools{}.RedundantHeights(t.Context(), src, info, Ladder(info))
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %d, %v; want %d", name, got, err, c.want)
		}
	}
}
