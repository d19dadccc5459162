package media

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// No encoder keeps noise at the rate of a rendition, and there is nothing else in these pictures.
func TestTranscode_PublishesNoise(t *testing.T) {
	t.Parallel()
	for _, size := range []string{"640x360", "64x36"} {
		t.Run(size, func(t *testing.T) {
			t.Parallel()
			publish(t, makeClip(t, "noise.mp4", "-f lavfi -i color=gray:s="+size+":r=25:d=3,noise=alls=100:allf=t"+
				" -c:v libx264 -preset ultrafast -qp 24 -pix_fmt yuv420p"))
		})
	}
}

func TestTranscodeChunk_AcceptsAnyDirectoryName(t *testing.T) {
	t.Parallel()
	d := probed(t, makeClip(t, "a.mp4", small("25", 18)+"-c:v libx264 -g 50"))
	if d.divide(t, 6*time.Second); len(d.plan.Chunks) != 3 {
		t.Fatalf("%d chunks, %s", len(d.plan.Chunks), d.plan.Reason)
	}
	dir := filepath.Join(t.TempDir(), "a [b] *?")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := chunkTools.TranscodeChunk(t.Context(), d.src, d.info, d.rungs, d.plan, 1, dir, nil); err != nil {
		t.Error(err)
	}
}
