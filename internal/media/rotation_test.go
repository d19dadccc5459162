package media

import (
	"path/filepath"
	"testing"
)

// The quarters of the picture are red and green above, blue and white below.
func TestTranscode_AppliesRotationAndMirroring(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		a, b, c, d int32
		size       [2]int
		want       [4]string
	}{
		{"upright", 1, 0, 0, 1, [2]int{320, 240}, [4]string{"r", "g", "b", "rgb"}},
		{"90 clockwise", 0, 1, -1, 0, [2]int{240, 320}, [4]string{"b", "r", "rgb", "g"}},
		{"180", -1, 0, 0, -1, [2]int{320, 240}, [4]string{"rgb", "b", "g", "r"}},
		{"270 clockwise", 0, -1, 1, 0, [2]int{240, 320}, [4]string{"g", "rgb", "r", "b"}},
		{"mirrored", -1, 0, 0, 1, [2]int{320, 240}, [4]string{"g", "r", "rgb", "b"}},
		{"upside down", 1, 0, 0, -1, [2]int{320, 240}, [4]string{"b", "rgb", "r", "g"}},
		{"transposed", 0, 1, 1, 0, [2]int{240, 320}, [4]string{"r", "b", "g", "rgb"}},
		{"transposed the other way", 0, -1, -1, 0, [2]int{240, 320}, [4]string{"rgb", "g", "b", "r"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			src := makeClip(t, "a.mp4", "-f lavfi -i "+quarters(320, 240)+h264+" -pix_fmt yuv420p")
			setMatrix(t, src, tt.a, tt.b, tt.c, tt.d)
			r := publish(t, src)
			v := r.out.Video[0]
			if v.Width != tt.size[0] || v.Height != tt.size[1] {
				t.Errorf("%dx%d; want %v", v.Width, v.Height, tt.size)
			}
			if got := corners(t, filepath.Join(r.dir, v.Playlist)); got != tt.want {
				t.Errorf("corners %v; want %v", got, tt.want)
			}
			poster := filepath.Join(t.TempDir(), "poster.jpg")
			if err := fastTools.Poster(t.Context(), src, r.info, poster); err != nil {
				t.Fatal(err)
			}
			if got := corners(t, poster); got != tt.want {
				t.Errorf("poster's corners %v; want %v", got, tt.want)
			}
		})
	}
}

func TestProbe_IgnoresOtherRotationsWithWarning(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=320x240:r=10:d=1"+h264)
	setMatrix(t, src, 1, 1, -1, 1)
	info, err := fastTools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	if info.Video.Rotation != 0 || info.Video.Width != 320 || len(info.Warnings) != 1 {
		t.Errorf("rotation %d, width %d, warnings %q", info.Video.Rotation, info.Video.Width, info.Warnings)
	}
}

func TestParseDisplayMatrix_RejectsInvalid(t *testing.T) {
	t.Parallel()
	for _, matrix := range []string{
		"", "\n", "00000000: 0 0 0\n00000001: 0 0 0\n00000002: 0 0 0\n", "a\nb\nc", "0: 1 2\n1: 3 4\n2: 5 6",
		"0: -9223372036854775808 0 0\n1: 0 65536 0\n2: 0 0 1", "0: NaN 0 0\n1: 0 NaN 0\n2: 0 0 1",
	} {
		if degrees, mirrored, ok := parseDisplayMatrix(matrix); ok {
			t.Errorf("orientation(%q) = %d, %v; want none", matrix, degrees, mirrored)
		}
	}
}
