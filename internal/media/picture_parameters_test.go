package media

import (
	"bytes"
	"strings"
	"testing"
)

// parametersWith encodes a frame with x264, and changes its parameters with a filter of ffmpeg.
func parametersWith(t *testing.T, change string) *pictureParameters {
	t.Helper()
	args := fields("-f lavfi -i testsrc2=s=64x64:r=25:d=0.4 -c:v libx264 -pix_fmt yuv420p -colorspace bt709 " +
		"-color_primaries bt709 -color_trc bt709 -color_range tv -bsf:v h264_metadata=" + change)
	parsed, err := decodeMP4(bytes.NewReader(ffmpeg(t, append(args, fields("-f mp4 -movflags empty_moov+delay_moov -")...)...)))
	if err != nil {
		t.Fatal(err)
	}
	sps, err := parseSPS(visualEntry(parsed.Init.Moov).AvcC.SPSnalus[0])
	if err != nil {
		t.Fatal(err)
	}
	return sps
}

func TestParseSPS_FindsWhatAPlayerWouldShowDifferently(t *testing.T) {
	t.Parallel()
	for change, word := range map[string]string{
		"sample_aspect_ratio=1":       "",
		"sample_aspect_ratio=10":      "square",
		"sample_aspect_ratio=4/3":     "square",
		"sample_aspect_ratio=7/5":     "square",
		"transfer_characteristics=16": "colours",
		"colour_primaries=9":          "colours",
		"matrix_coefficients=9":       "colours",
		"matrix_coefficients=2":       "",
		"video_full_range_flag=1":     "colours",
		"overscan_appropriate_flag=1": "",
		"chroma_sample_loc_type=2":    "",
	} {
		sps := parametersWith(t, change)
		err := sps.check()
		if (err == nil) != (word == "") || err != nil && !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v; want an error about %q", change, err, word)
		}
		if sps.reordered != 2 {
			t.Errorf("%s: %d frames are reordered; want 2", change, sps.reordered)
		}
	}
}
