package media

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// copySource is a source whose picture can be copied. Its keyframes are three seconds apart, and at other times than multiples of six.
const copySource = "-f lavfi -i testsrc2=s=480x360:r=25:d=12 -f lavfi -i sine=d=12 " +
	"-vf scale=out_color_matrix=bt709:out_range=tv,format=yuv420p -c:v libx264 -preset veryfast -crf 36 -g 70 -sc_threshold 0 -colorspace bt709 -color_primaries bt709 -color_trc bt709 -c:a aac "

// planCopy probes a source, and plans its copy.
func planCopy(t *testing.T, src string) (info *Info, packets *Packets, reason string) {
	t.Helper()
	info, packets, err := chunkTools.ProbePackets(t.Context(), src)
	if err == nil {
		reason, err = chunkTools.PlanCopy(t.Context(), src, info, packets, Ladder(info))
	}
	if err != nil {
		t.Fatal(err)
	}
	return info, packets, reason
}

// packetHashes are the digests of the data of a video's packets, without messages.
func packetHashes(t *testing.T, file string) (hashes []string) {
	t.Helper()
	text := ffmpeg(t, "-i", file, "-map", "0:v", "-c", "copy", "-bsf:v", "h264_mp4toannexb,filter_units=remove_types=6-9",
		"-f", "framehash", "-")
	for line := range strings.Lines(string(text)) {
		if list := strings.Split(line, ","); !strings.HasPrefix(line, "#") {
			hashes = append(hashes, strings.TrimSpace(list[len(list)-1]))
		}
	}
	return hashes
}

// wantCopy requires that a rendition has the packets of the source, and all renditions segments at the planned times.
func (r result) wantCopy(t *testing.T) {
	t.Helper()
	want, got := packetHashes(t, r.src), packetHashes(t, filepath.Join(r.dir, r.out.Video[0].Playlist))
	if len(got) == 0 || !slices.Equal(got, want) {
		t.Errorf("the copy has %d packets; want those of the source, %d", len(got), len(want))
	}
	for _, v := range r.out.Video {
		s, err := Tools{}.inspect(t.Context(), r.dir, v.Playlist)
		if err != nil {
			t.Fatal(err)
		}
		var starts []int64
		for _, g := range s.segments {
			starts = append(starts, g.start)
		}
		if !slices.Equal(starts, r.info.Video.Copy.Starts) {
			t.Errorf("%s has segments at %v; want %v", v.Name, starts, r.info.Video.Copy.Starts)
		}
	}
}

func TestPlanCopy_CopiesThePictureForTheRungOfItsSize(t *testing.T) {
	t.Parallel()
	r := result{src: makeClip(t, "a.mp4", copySource), dir: t.TempDir()}
	var reason string
	if r.info, _, reason = planCopy(t, r.src); reason != "" {
		t.Fatalf("copied nothing: %s", reason)
	}
	var err error
	if r.out, err = chunkTools.Transcode(t.Context(), r.src, r.info, LadderWith(r.info, LadderOptions{}), r.dir, nil); err != nil {
		t.Fatal(err)
	}
	r.complete(t)
	r.independently(t)
	r.wantCopy(t)
}
