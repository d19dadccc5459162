package media

import (
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

func TestAutoQuality_ReachesItsSimilarity(t *testing.T) {
	t.Parallel()
	tools := fastTools
	tools.Preset = "veryfast"
	for name, test := range map[string]struct {
		input     string
		best, end int // of the CRF
	}{
		"detail": {
			"-f lavfi -i testsrc2=s=160x120:r=10:d=8,scale=320:240:flags=bicubic,gblur=1 -color_range tv -color_primaries bt709" +
				" -color_trc bt709 -colorspace bt709 -pix_fmt yuv420p -c:v libx264 -preset ultrafast -qp 8", bestAutoCRF + 1, worstAutoCRF - 1,
		},
		"noise": {
			"-f lavfi -i color=gray:s=160x120:r=25:d=4,noise=alls=25:allf=t+u -c:v libx264 -preset ultrafast -qp 8",
			bestAutoCRF, bestAutoCRF,
		},
		"flat": {"-f lavfi -i color=gray:s=160x120:r=25:d=2" + closedGroups, worstAutoCRF, worstAutoCRF},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := makeClip(t, "a.mkv", test.input)
			info, err := tools.Probe(t.Context(), src)
			if err != nil {
				t.Fatal(err)
			}
			crf, err := tools.AutoQuality(t.Context(), src, info, Ladder(info))
			if err != nil || crf < test.best || crf > test.end {
				t.Fatalf("CRF %d, %v; want %d to %d", crf, err, test.best, test.end)
			}
			r := publishLadder(t, tools, src, LadderOptions{Quality: crf})
			if got := r.similarity(t); got < targetSSIM-0.002 && crf > bestAutoCRF {
				t.Errorf("with CRF %d the similarity is %.4f, want %.3f", crf, got, targetSSIM)
			}
		})
	}
}

// similarity is the mean SSIM of the luma of the largest rendition, which has the size of the source.
func (r result) similarity(t *testing.T) float64 {
	t.Helper()
	out := tool(t, "ffmpeg", "-nostdin", "-loglevel", "error", "-i", filepath.Join(r.dir, r.out.Video[0].Playlist), "-i", r.src, "-lavfi",
		"[0:v]settb=1/1000,setpts=N[a];[1:v]settb=1/1000,setpts=N[b];[a][b]ssim,metadata=print:key=lavfi.ssim.Y:file=-", "-f", "null", "-")
	values := regexp.MustCompile(`ssim\.Y=(\S+)`).FindAllSubmatch(out, -1)
	sum := 0.0
	for _, v := range values {
		n, err := strconv.ParseFloat(string(v[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum / float64(len(values))
}
