package media

import (
	"testing"
)

func TestHasFPSModeOption_UsesLibraryVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"ffmpeg version 4.4\nlibavcodec     58.134.100 / 58.134.100\n":             false,
		"ffmpeg version 5.0\nlibavcodec     59. 18.100 / 59. 18.100\n":             false,
		"ffmpeg version 5.1.9-0+deb12u1\nlibavcodec     59. 37.100 / 59. 37.100\n": true,
		"ffmpeg version N-12-gabc\nlibavcodec     61.  3.100 / 61.  3.100\n":       true,
		"ffmpeg version 8.0\nlibavcodec     62. 11.100 / 62. 11.100\n":             true,
	} {
		if got := isCodecVersion(version, 59, 37); got != want {
			t.Errorf("%q: %v; want %v", version, got, want)
		}
	}
}
