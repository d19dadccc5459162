package media

import (
	"slices"
	"testing"
)

// No encoder keeps noise at the rate of a rendition. What another host delivers of it is judged by
// what this host's own encoder reaches.
func TestCheckUntrusted_ComparesNoiseWithAnEncodeOfThisHost(t *testing.T) {
	if testing.Short() {
		t.Skip("transcodes several videos")
	}
	t.Parallel()
	src := makeClip(t, "noise.mp4", "-f lavfi -i testsrc2=s=640x360:r=25:d=5,noise=alls=40:allf=t -c:v libx264 -preset ultrafast -qp 24"+
		" -pix_fmt yuv420p")
	h := transcodeHonestly(t, src)
	for range 3 { // the times are random
		if _, err := h.check(t.Context(), deliver(t, h.dir, h.info, h.rungs), h.out); err != nil {
			t.Error(err)
		}
	}
	for _, f := range forgeries {
		if slices.Contains([]string{"black frames", "another video", "mirrored video", "video without colours"}, f.name) {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				dir, claimed := h.forge(t, f.args)
				_, err := h.check(t.Context(), dir, claimed)
				wantRefused(t, err, f.word)
			})
		}
	}
}
