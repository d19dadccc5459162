package media

import (
	"context"
	"fmt"
	"time"
)

// triedEncoders are the video encoders that TryEncoders tries, with what they need before -c:v.
var triedEncoders = []struct {
	name  string
	setup []string
}{
	{name: "libx264"}, {name: "libx265"}, {name: "libsvtav1"},
	{name: "h264_nvenc"}, {name: "hevc_nvenc"}, {name: "av1_nvenc"},
	{name: "h264_vaapi", setup: vaapiSetup}, {name: "hevc_vaapi", setup: vaapiSetup},
	{name: "h264_qsv"}, {name: "hevc_qsv"},
}

var vaapiSetup = []string{"-vaapi_device", "/dev/dri/renderD128", "-vf", "format=nv12,hwupload"}

// tryTimeout is how long an encoder may take for one second of a small picture.
const tryTimeout = 10 * time.Second

// TryEncoders returns the names of ffmpeg's video encoders that work on this host. It encodes a
// second with each, in the sandbox, because a list of encoders does not say whether their device
// and its driver are there. An encoder that fails is left out.
func (t Tools) TryEncoders(ctx context.Context) ([]string, error) {
	var works []string
	for _, e := range triedEncoders {
		within, cancel := context.WithTimeout(ctx, tryTimeout)
		args := []string{"-nostdin", "-hide_banner", "-loglevel", "error", "-f", "lavfi", "-i", "testsrc2=s=320x240:r=25:d=1"}
		args = append(append(args, e.setup...), "-c:v", e.name, "-f", "null", "-")
		_, err := t.run(within, command{tool: "ffmpeg", purpose: "try " + e.name, args: args, noProgress: true})
		cancel()
		if ctx.Err() != nil {
			return works, fmt.Errorf("try encoders: %w", context.Cause(ctx))
		}
		if err == nil {
			works = append(works, e.name)
		}
	}
	return works, nil
}
